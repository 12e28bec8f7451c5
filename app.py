"""Start kvviz: arguments in, collaborators tied together, the page served."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: waiting threads leave the cores free

from kvviz import engine, lab, presets
from kvviz.catalogue import text
from kvviz.ui.context import AppContext, Presets
from kvviz.ui.loading import Loader
from kvviz.ui.look import launch_options
from kvviz.ui.page import build_app


def main() -> None:
    """Serve the page at once; the model loads behind it."""
    parser = argparse.ArgumentParser(prog="app.py", description=text("ui.cli.description"))
    parser.add_argument("--host", help=text("ui.cli.host"))
    parser.add_argument("--port", type=int, help=text("ui.cli.port"))
    parser.add_argument("--model", default=engine.known_models()[0].name, help=text("ui.cli.model"))
    arguments = parser.parse_args()
    context = AppContext(
        compare=engine.compare,
        lab=lab,
        recompute=engine,
        loader=Loader(engine.ModelStore()),
        models=engine.known_models(),
        presets=Presets(presets.preset_names(), presets.preset_label, presets.preset),
        prompts=presets.prompt_presets(),
        default_model=arguments.model,
    )
    context.loader.warm(arguments.model)
    build_app(context).launch(**launch_options(arguments.host, arguments.port))


if __name__ == "__main__":
    main()
