"""Start kvviz: arguments in, collaborators tied together, the page served."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: waiting threads leave the cores free

from kvviz import engine, host, lab, presets
from kvviz.cli.serving import plain_refusals, read_flags
from kvviz.ui.context import AppContext, Presets
from kvviz.ui.loading import Loader
from kvviz.ui.look import launch_options
from kvviz.ui.page import build_app
from kvviz.ui.serving import server_options


def main() -> None:
    """Serve the page at once; the model loads behind it."""
    flags = read_flags(engine.known_models()[0].name)
    with plain_refusals():
        hosting = host.open_hosting(os.environ, flags.model, engine.free_device_bytes)
    context = AppContext(
        compare=host.HostedCompare(hosting, engine.compare),
        lab=host.HostedLab(hosting, lab),
        recompute=host.HostedRecompute(hosting, engine),
        loader=Loader(engine.ModelStore(), hosting.limits.check_model),
        models=engine.offered_models(hosting.limits.models),
        presets=Presets(presets.preset_names(), presets.preset_label, presets.preset),
        prompts=presets.prompt_presets(),
        default_model=flags.model,
        score=host.HostedScore(hosting, engine.score),
        hosting=hosting,
    )
    context.loader.warm(flags.model)
    build_app(context).launch(**launch_options(flags.host, flags.port), **server_options(context))


if __name__ == "__main__":
    main()
