"""What happens when a person acts on the Attention tab, and when a tab comes to the front.

Knows runs, desks and views; does not know the layout. Starts no run and recomputes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import gradio as gr

from kvviz.figures.atlas import page_of
from kvviz.record import RunRecord
from kvviz.ui.atlas_views import ATLAS, Records, affected
from kvviz.ui.components import encode
from kvviz.ui.context import AppContext
from kvviz.ui.desk import MODES, SHOWN, AtlasChoice, Desk
from kvviz.ui.runs import LiveRun
from kvviz.ui.views import BUILDERS, LETTERS, panel

SKIP = gr.skip()


def session_of(request: gr.Request) -> str:
    """Whose page it is."""
    return str(request.session_hash)


def atlas_builders(records: Records, desk: Desk, run_id: str) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every view of the Attention tab, not built yet."""
    return {name: partial(build, records, desk, run_id) for name, build in ATLAS.items()}


def run_builders(records: Records, run: LiveRun) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every view of the Run tab, not built yet."""
    builders: dict[str, Callable[[], dict[str, Any]]] = {
        name: partial(build, records, run.choice) for name, build in BUILDERS.items()
    }
    for index, letter in enumerate(LETTERS):
        builders[f"panel_{letter.lower()}"] = partial(panel, records, index)
    return builders


def changed_choice(before: AtlasChoice, change: dict[str, Any], record: RunRecord | None) -> AtlasChoice:
    """The choice after what a page asks for; what it may not ask for changes nothing."""
    found: dict[str, Any] = {}
    if change.get("shown") in SHOWN:
        found["shown"] = change["shown"]
    if change.get("mode") in MODES:
        found["mode"] = change["mode"]
    if "step" in change:
        step = change["step"]
        found["step"] = max(0, int(step)) if isinstance(step, (int, float)) else None
    model = record.model if record else None
    for name, count in (("layer", model and model.n_layers), ("head", model and model.n_heads)):
        if count and isinstance(change.get(name), (int, float)):
            found[name] = min(max(0, int(change[name])), count - 1)
    return replace(before, **found)


class AtlasHandlers:
    """Bound to one application's context."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    def act(self, request: gr.Request, event: gr.EventData, run_id: str) -> list[Any]:
        """A view asks for another head, step, mode or configuration: answer with what that changes."""
        session = session_of(request)
        run = self._context.runs.get(run_id, session)
        records = run.snapshot() if run else []
        before = self._context.desks.get(session)
        asked = changed_choice(before.choice, dict(event.change), records[0] if records else None)
        choice = replace(asked, seq=int(event.seq))
        moved = (choice.layer, choice.shown) != (before.choice.layer, before.choice.shown)
        leaves_tile = before.tile is not None and (moved or "back" in event.change)
        changes: dict[str, Any] = {"choice": choice}
        if leaves_tile:
            changes |= {"tiled": None, "tile": None}
        desk = self._context.desks.change(session, **changes)
        if run is None:
            return [SKIP for _ in ATLAS]
        names = affected(before.choice, choice)
        if leaves_tile:
            names.append("atlas_map")
        if _turns_page(before.choice, choice, records[0]):
            names.append("atlas_thumbs")
        builders = atlas_builders(records, desk, run.id)
        return [encode(builders[name]()) if name in names else SKIP for name in ATLAS]

    def enter(self, request: gr.Request, tab: str, views: tuple[str, ...], run_id: str) -> list[Any]:
        """A tab comes to the front: from now on its views are computed, and these are they as of now."""
        session = session_of(request)
        desk = self._context.desks.change(session, visible=tab)
        run = self._context.runs.get(run_id, session)
        if run is None:
            return [SKIP for _ in views]
        records = run.snapshot()
        builders = run_builders(records, run) | atlas_builders(records, desk, run.id)
        return [encode(builders[name]()) for name in views]


def _turns_page(before: AtlasChoice, after: AtlasChoice, record: RunRecord) -> bool:
    if record.model is None:
        return False
    shape = record.model.n_layers, record.model.n_heads
    return page_of(before.layer, *shape) != page_of(after.layer, *shape)
