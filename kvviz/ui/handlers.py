"""What happens when a person acts on the Run tab: form to run, run to views.

Knows the store of runs and the views; does not know the layout, nor what the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.errors import KvvizError
from kvviz.ui import form, worker
from kvviz.ui.atlas import SKIP, atlas_builders, run_builders, session_of
from kvviz.ui.components import encode
from kvviz.ui.context import AppContext
from kvviz.ui.desk import NOTHING_RECOMPUTED
from kvviz.ui.frames import TICK, FrameClock
from kvviz.ui.line import place_notice
from kvviz.ui.offload_handlers import offload_builders
from kvviz.ui.rail import read_inputs
from kvviz.ui.runs import LiveRun, ViewChoice
from kvviz.ui.status import load_notice
from kvviz.ui.views import BUILDERS, affected, notice, run_notice


@dataclass(frozen=True)
class ViewControls:
    """The controls that choose what is looked at; all are inputs of every handler that looks."""

    shown: gr.Radio
    group: gr.Radio
    latest: gr.Checkbox
    step: gr.Slider
    layer: gr.Number
    head: gr.Number
    scale: gr.Radio
    measure: gr.Radio

    @property
    def inputs(self) -> list[Any]:
        """In the order that :func:`read_choice` expects."""
        return [
            self.shown, self.group, self.latest, self.step, self.layer, self.head, self.scale, self.measure,
        ]  # fmt: skip


N_CONTROLS = 8
#: Outputs of a stream that come before the views: run id, Stop, notice, follow, step slider.
N_STREAM_CONTROLS = 5


def read_choice(values: tuple[Any, ...]) -> ViewChoice:
    """What the controls ask to see; an empty number field means 0."""
    shown, group, latest, step, layer, head, scale, measure = values
    return ViewChoice(
        shown=int(shown),
        group=group,
        step=None if latest else int(step),
        layer=int(layer or 0),
        head=int(head or 0),
        scale=scale,
        measure=measure,
    )


class RunHandlers:
    """Bound to one application's context. ``views`` are the names of the live views in output order;
    ``notice`` and ``stop`` among them stand for a second notice line and a second Stop button."""

    def __init__(self, context: AppContext, views: tuple[str, ...]) -> None:
        self._context, self._views = context, views

    # -- a run ---------------------------------------------------------------------------------------

    def prepare(self, request: gr.Request, *values: Any) -> list[Any]:
        """Read the form and lay a run ready; what is shown stays until the engine has accepted it."""
        model, fields, sides = read_inputs(values[N_CONTROLS:])
        try:
            if not model:
                raise form.FormError("model_missing")
            configs = form.read_request(fields, sides, self._context.presets)
            self._context.hosting.limits.check_model(model)
            self._context.hosting.limits.check_request(configs)
        except KvvizError as error:
            return ["", SKIP, encode(notice(str(error), "error"))]
        choice = replace(read_choice(values[:N_CONTROLS]), step=None)
        run = LiveRun(session_of(request), model, configs, choice)
        self._context.runs.add(run)
        waiting = notice(text("ui.phase.waiting"), "busy")
        return [run.id, gr.Button(interactive=True), encode(waiting)]

    def stream(self, request: gr.Request, pending: str) -> Iterator[list[Any]]:
        """Carry the run and show it until it ends, is stopped, or another one takes its place."""
        run = self._context.runs.get(pending, session_of(request))
        if run is None or not run.claim():
            yield [SKIP for _ in range(N_STREAM_CONTROLS + len(self._views))]
            return
        clock = FrameClock()
        worker.start(run, self._context)
        try:
            while not run.wait(TICK) and not run.superseded:
                if run.stop.is_set() and run.phase == "loading":
                    break
                yield self._frame(run, clock)
            if not run.superseded:
                yield self._frame(run, clock, final=True)
            elif (newest := self._context.runs.newest(run.session)) is not None and newest.is_stored:
                yield self.whole(newest)  # a frame of this run may have come after what was opened
        finally:
            run.stop.set()

    def whole(self, run: LiveRun) -> list[Any]:
        """All outputs of a stream for a run that is over: it is the one that is looked at from now on."""
        return self._frame(run, FrameClock(), final=True)

    def told(self, line: str) -> list[Any]:
        """Outputs of a stream that say ``line`` under the Run button and change nothing else."""
        return [SKIP, SKIP, line, SKIP, SKIP, *self._fill({})]

    def stop(self, request: gr.Request) -> Any:
        """Throw the switch of this session's run; the run ends itself within two tokens."""
        self._context.runs.stop(session_of(request))
        return gr.Button(interactive=False)

    def _frame(self, run: LiveRun, clock: FrameClock, *, final: bool = False) -> list[Any]:
        loading = load_notice(self._context.loader.state(run.model))
        waiting = place_notice(self._context.hosting.line, run.stop)
        line = clock.fresh("notice", waiting or run_notice(run, loading, final=final)) or SKIP
        stop = gr.Button(interactive=False) if final else SKIP
        twins = {"notice": line, "stop": stop}
        if not run.has_started:
            return [SKIP, stop, line, SKIP, SKIP, *self._fill(twins)]
        begun = clock.fresh("run", {"id": run.id})
        if begun:
            self._take_over(run)
        last, at = run.steps(run.choice.step)
        slider = gr.Slider(maximum=last, value=at) if begun or final else SKIP
        views = dict(clock.select(self._builders(run), final=final)) | twins
        return [run.id if begun else SKIP, stop, line, True if begun else SKIP, slider, *self._fill(views)]

    def _take_over(self, run: LiveRun) -> None:
        """The run has begun: it is the one that is looked at, at its latest step."""
        self._context.runs.settle(run)
        choice = self._context.desks.get(run.session).choice
        model = run.snapshot()[0].model
        if model is not None:  # the one before may have had more layers
            layer, head = min(choice.layer, model.n_layers - 1), min(choice.head, model.n_heads - 1)
            choice = replace(choice, step=None, layer=layer, head=head)
        self._context.desks.change(run.session, choice=choice, **NOTHING_RECOMPUTED)

    def _builders(self, run: LiveRun) -> dict[str, Callable[[], Any]]:
        """Only what the visible tab needs."""
        desk = self._context.desks.get(run.session)
        records = run.snapshot()
        if desk.visible == "attention":
            return atlas_builders(records, desk, run.id)
        if desk.visible == "offload":
            return dict(offload_builders(records, desk.offload))
        return run_builders(records, run) if desk.visible == "run" else {}

    def _fill(self, views: dict[str, Any]) -> list[Any]:
        return [views.get(name, SKIP) for name in self._views]

    # -- looking -------------------------------------------------------------------------------------

    def look(self, request: gr.Request, run_id: str, *values: Any) -> list[Any]:
        """Redraw what a changed choice affects, from the run's records."""
        return self._redraw(run_id, request, read_choice(values))

    def scrub(self, request: gr.Request, run_id: str, *values: Any) -> list[Any]:
        """The step slider was moved: stop following the latest step."""
        step = int(values[3])
        choice = replace(read_choice(values), step=step)
        return [False, *self._redraw(run_id, request, choice)]

    def pick(self, request: gr.Request, event: gr.EventData, run_id: str, *values: Any) -> list[Any]:
        """A cell of the layer x head map was clicked: show that head's attention map."""
        layer, head = int(event.layer), int(event.head)
        choice = replace(read_choice(values), layer=layer, head=head)
        return [layer, head, *self._redraw(run_id, request, choice)]

    def _redraw(self, run_id: str, request: gr.Request, choice: ViewChoice) -> list[Any]:
        run = self._context.runs.get(run_id, session_of(request))
        if run is None:
            return [SKIP for _ in BUILDERS]
        names = affected(run.choice, choice)
        run.choice = choice
        records = run.snapshot()
        return [encode(build(records, choice)) if name in names else SKIP for name, build in BUILDERS.items()]
