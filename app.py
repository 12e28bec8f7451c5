"""Start kvviz: arguments in, collaborators tied together, the page served."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: waiting threads leave the cores free

from kvviz import engine, host, presets, zero_gpu
from kvviz.cli.serving import plain_refusals, read_flags
from kvviz.ui.context import AppContext, Presets
from kvviz.ui.loading import Loader
from kvviz.ui.page import build_app
from kvviz.ui.serving import launch


def main() -> None:
    """Serve the page at once; the model loads behind it."""
    flags = read_flags(engine.known_models()[0].name)
    with plain_refusals():
        hosting = host.open_hosting(os.environ, flags.model, engine.free_device_bytes)
    work = zero_gpu.workshop()
    context = AppContext(
        compare=host.HostedCompare(hosting, work.compare),
        comparing=host.HostedComparing(hosting, work.comparing),
        lab=host.HostedLab(hosting, work),
        recompute=host.HostedRecompute(hosting, work), summarize=engine.summarize,
        loader=Loader(work.store, hosting.limits.check_model),
        models=engine.offered_models(hosting.limits.models),
        presets=Presets(presets.preset_names(), presets.preset_label, presets.preset),
        prompts=presets.prompt_presets(),
        default_model=flags.model,
        score=host.HostedScore(hosting, work.score), hosting=hosting,
    )  # fmt: skip
    context.loader.warm(flags.model)
    launch(build_app(context), context, flags.host, flags.port)


if __name__ == "__main__":
    main()
