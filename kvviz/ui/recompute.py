"""Numbers that a run did not keep, computed again on request: logits of a layer, exact tiles of a map.

Knows the engine's two recomputations and the desk they are laid on; knows no layout. They wait in the queue
of the model, and never run beside a run of the same page.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
import numpy as np

from kvviz.catalogue import text
from kvviz.errors import KvvizError
from kvviz.figures.atlas_replay import tile_window
from kvviz.record import RunRecord
from kvviz.ui.atlas import SKIP, session_of
from kvviz.ui.atlas_views import attention_map
from kvviz.ui.components import encode
from kvviz.ui.context import AppContext
from kvviz.ui.desk import Desk, Wish
from kvviz.ui.frames import TICK
from kvviz.ui.language import in_thread
from kvviz.ui.line import place_notice
from kvviz.ui.runs import LiveRun
from kvviz.ui.views import notice

logger = logging.getLogger(__name__)
#: Longest side of a tile, in tokens.
MOST_TILE_TOKENS = 256
Tell = Callable[[float], None]


class Job:
    """One recomputation in a thread of its own; ``result`` or ``error`` when done."""

    def __init__(self, work: Callable[[Tell], Any]) -> None:
        self.fraction = 0.0
        self.result: Any = None
        self.error = ""
        self._work = work
        self._done = threading.Event()
        in_thread(self._carry, called="kvviz-recompute")

    def wait(self, timeout: float) -> bool:
        """True when done."""
        return self._done.wait(timeout)

    def _tell(self, fraction: float) -> None:
        self.fraction = fraction

    def _carry(self) -> None:
        try:
            self.result = self._work(self._tell)
        except KvvizError as error:
            self.error = str(error)
        except Exception:
            logger.exception("recomputing failed")
            self.error = text("atlas.recompute_failed")
        finally:
            self._done.set()


class RecomputeHandlers:
    """Bound to one application's context. Outputs are the notice and the map."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    def wish(self, request: gr.Request, event: gr.EventData, run_id: str) -> list[Any]:
        """Take note of what is to be recomputed, or say why it cannot be."""
        session = session_of(request)
        run = self._context.runs.get(run_id, session)
        if run is None:
            return [SKIP, SKIP]
        records = run.snapshot()
        desk = self._context.desks.get(session)
        if run.is_stored:  # its record names a model, and no model is loaded because a file names it
            self._context.desks.change(session, wish=None)
            return [encode(notice(text("atlas.recompute_stored"), "error")), SKIP]
        if not run.is_done:
            self._context.desks.change(session, wish=None)
            return [encode(notice(text("atlas.recompute_live"), "error")), SKIP]
        desk.stop.set()
        wish = _wish(run, records, desk, event)
        desk = self._context.desks.change(session, wish=wish, stop=threading.Event())
        waiting = notice(text("atlas.recompute_waiting"), "busy")
        return [encode(waiting), encode(attention_map(records, desk, run.id))]

    def cancel(self, request: gr.Request) -> None:
        """Throw the switch of what is being recomputed."""
        self._context.desks.get(session_of(request)).stop.set()

    def fulfil(self, request: gr.Request) -> Iterator[list[Any]]:
        """Recompute what was asked for and show it; a newer wish, Stop or a closed page ends it."""
        session = session_of(request)
        desk = self._context.desks.get(session)
        wish, stop = desk.wish, desk.stop
        run = self._context.runs.get(wish.run_id, session) if wish else None
        if wish is None or run is None:
            yield [SKIP, SKIP]
            return
        records = run.snapshot()
        job = Job(lambda tell: self._compute(run, records, wish, stop, tell))
        try:
            while not job.wait(TICK):
                key = "atlas.recompute_stopping" if stop.is_set() else "atlas.recompute_busy"
                busy = notice(text(key), "busy", job.fraction)
                yield [encode(place_notice(self._context.hosting.line, stop) or busy), SKIP]
        finally:
            if not job.wait(0):
                stop.set()
        yield self._answer(session, records, wish, stop, job)

    def _answer(
        self, session: str, records: list[RunRecord], wish: Wish, stop: threading.Event, job: Job
    ) -> list[Any]:
        desk = self._context.desks.get(session)
        if desk.wish is not wish:  # another one will answer, or what it is about is no longer shown
            return [SKIP if desk.wish else encode(notice()), SKIP]
        changes: dict[str, Any] = {"wish": None}
        if job.result is not None and wish.is_tile:
            changes |= {"tile": job.result, "tiled": wish}
        elif job.result is not None:
            changes |= {"logits": job.result, "fulfilled": wish}
        desk = self._context.desks.change(session, **changes)
        if stop.is_set() and job.result is None:
            line = notice(text("atlas.recompute_stopped"))
        else:
            line = notice(job.error, "error" if job.error else "info")
        return [encode(line), encode(attention_map(records, desk, wish.run_id))]

    def _compute(
        self, run: LiveRun, records: list[RunRecord], wish: Wish, stop: threading.Event, tell: Tell
    ) -> Any:
        model = self._context.loader.get(run.model)
        engine = self._context.recompute
        if wish.rows is not None and wish.columns is not None:
            return engine.exact_tile(
                model, records[wish.sides[0]], layer=wish.layer, rows=wish.rows, columns=wish.columns,
                stop=stop, progress=lambda done, total: tell(done / total),
            )  # fmt: skip
        parts = len(wish.sides)
        return {
            side: engine.logit_map(
                model, records[side], layer=wish.layer, stop=stop,
                progress=lambda done, total, place=place: tell((place + done / total) / parts),  # type: ignore[misc]
            )
            for place, side in enumerate(wish.sides)
        }  # fmt: skip


def _wish(run: LiveRun, records: list[RunRecord], desk: Desk, event: gr.EventData) -> Wish:
    choice = desk.choice
    if event.kind != "tile":
        return Wish(run.id, choice.layer, choice.sides)
    side = choice.sides[min(max(0, int(event.side)), len(choice.sides) - 1)]
    grid = records[side].grid
    assert grid is not None
    tokens = records[side].rows
    last = int(np.searchsorted(grid.edges, tokens)) - 1
    row, column = (min(max(0, int(place)), last) for place in (event.row, event.column))
    rows = tile_window(grid.edges, row, tokens)
    columns = tile_window(grid.edges, min(row, column), tokens)
    columns = columns[0], min(columns[1], rows[1])
    return Wish(run.id, choice.layer, (side,), _bounded(rows), _bounded(columns))


def _bounded(window: tuple[int, int]) -> tuple[int, int]:
    return window[0], min(window[1], window[0] + MOST_TILE_TOKENS)
