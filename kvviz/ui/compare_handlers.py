"""What happens when a person acts on the Compare tab: form to comparison to views, and a mark to maps.

Knows the store of comparisons and the views; does not know the layout, nor what the engine does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.errors import KvvizError
from kvviz.figures.theme import run_letter
from kvviz.ui import compare_views, worker
from kvviz.ui.atlas import SKIP, session_of
from kvviz.ui.compare_form import read_inputs
from kvviz.ui.compare_views import MAPS, VIEWS, MapChoice
from kvviz.ui.comparison_runs import ComparisonRun, drive
from kvviz.ui.components import encode
from kvviz.ui.context import AppContext
from kvviz.ui.frames import TICK, FrameClock
from kvviz.ui.line import place_notice
from kvviz.ui.status import load_notice
from kvviz.ui.views import notice


@dataclass(frozen=True)
class MapControls:
    """The controls that choose which maps are shown."""

    first: gr.Radio
    second: gr.Radio
    layer: gr.Number
    head: gr.Number
    row: gr.Number
    scale: gr.Radio

    @property
    def inputs(self) -> list[Any]:
        """In the order that :func:`read_choice` expects."""
        return [self.first, self.second, self.layer, self.head, self.row, self.scale]


#: Outputs of a stream that come before the views: run id, Stop, notice, first, second, row, map notice.
N_STREAM_CONTROLS = 7


def read_choice(values: tuple[Any, ...]) -> MapChoice:
    """What the controls ask to see; an empty layer or head is 0, an empty row the last that is shared."""
    first, second, layer, head, row, scale = values
    return MapChoice(
        pair=(int(first), int(second)),
        layer=int(layer or 0),
        head=int(head or 0),
        row=None if row is None or row == "" else int(row),
        scale=scale,
    )


class CompareHandlers:
    """Bound to one application's context."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    # -- a comparison --------------------------------------------------------------------------------

    def prepare(self, request: gr.Request, *values: Any) -> list[Any]:
        """Read the form and lay the comparison ready: id, Stop, notice."""
        limits = self._context.hosting.limits
        try:
            model, asked = read_inputs(values, self._context)
            limits.check_model(model)
            limits.check_request(asked.runs)
        except KvvizError as error:
            return ["", SKIP, encode(notice(str(error), "error"))]
        run = ComparisonRun(session_of(request), model, asked)
        self._context.comparisons.add(run)
        waiting = notice(text("ui.phase.waiting"), "busy")
        return [run.id, gr.Button(interactive=True), encode(waiting)]

    def stream(self, request: gr.Request, pending: str, *values: Any) -> Iterator[list[Any]]:
        """Carry the comparison and show it until it ends, is stopped, or another one takes its place."""
        run = self._context.comparisons.get(pending, session_of(request))
        if not isinstance(run, ComparisonRun) or not run.claim():
            yield [SKIP for _ in range(N_STREAM_CONTROLS + len(VIEWS))]
            return
        clock = FrameClock()
        worker.start(run, self._context, drive)
        try:
            while not run.wait(TICK) and not run.superseded:
                if run.stop.is_set() and run.phase == "loading":
                    break
                yield self._frame(run, clock)
            if not run.superseded:
                yield self._last(run, clock, read_choice(values))
        finally:
            run.stop.set()

    def stop(self, request: gr.Request) -> Any:
        """Throw the switch of this session's comparison; generation ends within two tokens, scoring after the
        chunk that it reads."""
        self._context.comparisons.stop(session_of(request))
        return gr.Button(interactive=False)

    def _line(self, run: ComparisonRun, clock: FrameClock, *, final: bool) -> Any:
        loading = load_notice(self._context.loader.state(run.model))
        waiting = place_notice(self._context.hosting.line, run.stop)
        told = waiting or compare_views.compare_notice(run, loading, final=final)
        return clock.fresh("notice", told) or SKIP

    def _frame(self, run: ComparisonRun, clock: FrameClock) -> list[Any]:
        """Texts and numbers while they grow; charts of an earlier comparison leave with the first of them."""
        line = self._line(run, clock, final=False)
        if not run.has_started:
            return [SKIP, SKIP, line, SKIP, SKIP, SKIP, SKIP, *self._fill({})]
        begun = clock.fresh("run", {"id": run.id})
        if begun:
            self._context.comparisons.settle(run)
        views = compare_views.panels(run.snapshot(), None, has_maps=False)
        if begun:
            views |= compare_views.charts(None) | compare_views.tables(None)
        return [run.id if begun else SKIP, SKIP, line, SKIP, SKIP, SKIP, SKIP, *self._fresh(views, clock)]

    def _last(self, run: ComparisonRun, clock: FrameClock, choice: MapChoice) -> list[Any]:
        line, stop = self._line(run, clock, final=True), gr.Button(interactive=False)
        if not run.has_started:
            return [SKIP, stop, line, SKIP, SKIP, SKIP, SKIP, *self._fill({})]
        if clock.fresh("run", {"id": run.id}):
            self._context.comparisons.settle(run)
        records = run.snapshot()
        choice = _fitting(choice, len(records), records[0].model)
        views = (
            compare_views.panels(records, run.result, has_maps=True)
            | compare_views.charts(run.result)
            | compare_views.tables(run.result)
            | compare_views.maps(records, choice)
        )
        names = [(run_letter(i), str(i)) for i in range(len(records))]
        shown = encode(compare_views.map_notice(records, choice))
        return [
            run.id, stop, line,
            *(gr.Radio(choices=names, value=str(side)) for side in choice.pair),
            compare_views.parting_row(records, choice.pair[1]), shown,
            *self._fresh(views, clock),
        ]  # fmt: skip

    def _fresh(self, views: dict[str, Any], clock: FrameClock) -> list[Any]:
        return self._fill({name: clock.fresh(name, value) or SKIP for name, value in views.items()})

    def _fill(self, views: dict[str, Any]) -> list[Any]:
        return [views.get(name, SKIP) for name in VIEWS]

    # -- looking -------------------------------------------------------------------------------------

    def look(self, request: gr.Request, run_id: str, *values: Any) -> list[Any]:
        """Redraw the maps for what the controls ask: notice, maps."""
        run = self._context.comparisons.get(run_id, session_of(request))
        return [SKIP] * (1 + len(MAPS)) if run is None else self._maps(run.snapshot(), read_choice(values))

    def jump(self, index: int, request: gr.Request, run_id: str, *values: Any) -> list[Any]:
        """The mark of configuration ``index`` was pressed: the maps of the first and of this one, at the row
        that chose the token. First, second, row, notice, maps."""
        run = self._context.comparisons.get(run_id, session_of(request))
        if run is None or not 0 < index < len(run.configs):
            return [SKIP] * (4 + len(MAPS))
        records = run.snapshot()
        row = compare_views.parting_row(records, index)
        choice = replace(read_choice(values), pair=(0, index), row=row)
        return ["0", str(index), row, *self._maps(records, choice)]

    def _maps(self, records: Any, choice: MapChoice) -> list[Any]:
        views = compare_views.maps(records, choice)
        return [
            encode(compare_views.map_notice(records, choice)),
            *(encode(views[name]) for name in MAPS),
        ]


def _fitting(choice: MapChoice, count: int, model: Any) -> MapChoice:
    """A choice for a new comparison: the first two, a head that there is, the row where they part."""
    pair = (0, min(1, count - 1))
    if model is None:
        return replace(choice, pair=pair, row=None)
    layer, head = min(choice.layer, model.n_layers - 1), min(choice.head, model.n_heads - 1)
    return replace(choice, pair=pair, layer=layer, head=head, row=None)
