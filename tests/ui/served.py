"""A page on the loopback, served as people get it, over a tiny random model or stand-ins."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kvviz import engine, host, lab, presets
from kvviz.ui.context import AppContext, Presets
from kvviz.ui.loading import Loader
from kvviz.ui.look import launch_options
from kvviz.ui.page import build_app
from kvviz.ui.serving import server_options

TINY = "tiny-random-llama"


def tiny_context(limits: host.Limits | None = None, memory: host.Memory | None = None) -> AppContext:
    """What ``app.py`` ties together, opening with the tiny model."""
    limits = limits or host.Limits()
    hosting = host.Hosting(limits, memory)
    return AppContext(
        compare=host.HostedCompare(hosting, engine.compare),
        comparing=host.HostedComparing(hosting, engine.comparing),
        lab=host.HostedLab(hosting, lab),
        recompute=host.HostedRecompute(hosting, engine),
        summarize=engine.summarize,
        score=host.HostedScore(hosting, engine.score),
        loader=Loader(engine.ModelStore(), limits.check_model),
        models=engine.offered_models(limits.models or (TINY,)),
        presets=Presets(presets.preset_names(), presets.preset_label, presets.preset),
        prompts=presets.prompt_presets(),
        default_model=TINY,
        hosting=hosting,
    )


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(context: AppContext, **options: Any) -> Iterator[str]:
    """The address of the page while the block runs."""
    demo = build_app(context)
    port = free_port()
    given = launch_options("127.0.0.1", port) | server_options(context) | options
    demo.launch(**given, prevent_thread_lock=True, quiet=True)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        demo.close(verbose=False)
