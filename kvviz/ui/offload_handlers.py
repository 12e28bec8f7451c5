"""What happens when a person acts on the Offload tab, and when it comes to the front.

Knows runs, desks and views; does not know the layout. Starts no run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.config import CacheConfig, Middle, Offload, OffloadRead
from kvviz.ui import form
from kvviz.ui.components import encode
from kvviz.ui.context import AppContext
from kvviz.ui.desk import OffloadChoice
from kvviz.ui.offload_views import OFFLOAD, Records
from kvviz.ui.opening import RUN_TAB
from kvviz.ui.rail import name_side
from kvviz.ui.runs import LiveRun
from kvviz.ui.views import notice

KEY = "offload"
#: name of a button -> where B's blocks live and how they are read
TRIED = {
    "host": (Offload.HOST, OffloadRead.PREFETCH),
    "on_host": (Offload.HOST, OffloadRead.ON_HOST),
    "disk": (Offload.DISK, OffloadRead.PREFETCH),
}
_LONG_PROMPT = "document"


def offload_builders(records: Records, choice: OffloadChoice) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every view of the tab, not built yet."""
    return {name: partial(build, records, choice) for name, build in OFFLOAD.items()}


class OffloadHandlers:
    """Bound to one application's context."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    def look(
        self, request: gr.Request, run_id: str, shown: str, latest: bool, step: float, link: str
    ) -> list[Any]:
        """The controls changed: all views, from the run's records."""
        at = None if latest else int(step or 0)
        return self._show(request, run_id, OffloadChoice(int(shown), at, link))

    def scrub(
        self, request: gr.Request, run_id: str, shown: str, latest: bool, step: float, link: str
    ) -> list[Any]:
        """The step slider was moved: stop following the latest step."""
        return [False, *self.look(request, run_id, shown, False, step, link)]

    def enter(self, request: gr.Request, run_id: str) -> list[Any]:
        """The tab comes to the front: its slider and its views as of now."""
        session = str(request.session_hash)
        choice = self._context.desks.change(session, visible=KEY).offload
        run = self._context.runs.get(run_id, session)
        if run is None:
            return [gr.skip() for _ in ("slider", *OFFLOAD)]
        last, at = run.steps(choice.step)
        return [gr.Slider(maximum=last, value=at), *self._views(run, choice)]

    def fill(self, tried: str, model: str) -> list[Any]:
        """A request that shows the thing: a long prompt, A without offload, B the same with it."""
        prompt = next((p for p in self._context.prompts if p.key == _LONG_PROMPT), self._context.prompts[0])
        told = encode(notice(text("ui.offload.filled")))
        filled: list[Any] = [told, prompt.key, prompt.text, prompt.use_chat_template]
        base = self._context.opening[1]
        cache = replace(self._context.presets.cache(base), middle=Middle.QUANTIZE)
        offload, read = TRIED[tried]
        for side in (
            replace(cache, offload=Offload.NONE),
            replace(cache, offload=offload, offload_read=read),
        ):
            preset, fields = self._named(side, base), form.cache_fields(side)
            filled += [preset, *fields, name_side(self._context, model, preset, *fields)]
        return [*filled, gr.Tabs(selected=RUN_TAB)]

    def _named(self, cache: CacheConfig, otherwise: str) -> str:
        """The preset that is exactly ``cache``."""
        presets = self._context.presets
        return next((name for name in presets.names if presets.cache(name) == cache), otherwise)

    def _show(self, request: gr.Request, run_id: str, choice: OffloadChoice) -> list[Any]:
        session = str(request.session_hash)
        self._context.desks.change(session, offload=choice)
        return self._views(self._context.runs.get(run_id, session), choice)

    def _views(self, run: LiveRun | None, choice: OffloadChoice) -> list[Any]:
        if run is None:
            return [gr.skip() for _ in OFFLOAD]
        return [encode(build()) for build in offload_builders(run.snapshot(), choice).values()]
