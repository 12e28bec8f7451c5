"""What happens when a person acts on an experiment: settings to a run, a run to views, a result to a file.

Knows the store of experiments and the views; does not know the layout, nor what an experiment does.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.errors import KvvizError
from kvviz.experiment import ExperimentInfo
from kvviz.figures.lab import MOST_PANELS
from kvviz.ui import lab_views
from kvviz.ui.components import encode
from kvviz.ui.context import AppContext
from kvviz.ui.form import FormError
from kvviz.ui.lab_runs import LabRun
from kvviz.ui.line import place_notice
from kvviz.ui.status import load_notice
from kvviz.ui.views import notice

SKIP = gr.skip()
TICK = 0.5
#: result id, Stop, both downloads, progress line, finding, plots, tables
N_OUTPUTS = 6 + MOST_PANELS + 1


class LabHandlers:
    """Of one experiment, bound to one application's context."""

    def __init__(self, context: AppContext, info: ExperimentInfo) -> None:
        self._context, self._info = context, info

    def prepare(self, request: gr.Request, model: str, *values: Any) -> list[Any]:
        """Read the controls and lay the experiment ready: id, Stop, line."""
        given = dict(zip((control.key for control in self._info.controls), values, strict=True))
        try:
            if not str(model or "").strip():
                raise FormError("model_missing")
            self._context.hosting.limits.check_model(str(model).strip())
            settings = self._info.settings(given)
        except KvvizError as error:
            return ["", SKIP, encode(notice(str(error), "error"))]
        run = LabRun(str(request.session_hash), self._info.name, str(model).strip(), settings)
        self._context.lab_runs.add(run)
        return [run.id, gr.Button(interactive=True), encode(notice(text("ui.phase.waiting"), "busy"))]

    def stream(self, request: gr.Request, pending: str) -> Iterator[list[Any]]:
        """Carry the experiment and tell how far it is; in the end show what it found."""
        run = self._context.lab_runs.get(pending, str(request.session_hash))
        if run is None or not run.start(lambda: self._perform(run)):
            yield [SKIP] * N_OUTPUTS
            return
        try:
            shown = ""
            while not run.wait(TICK):
                line = encode(self._line(run))
                if line != shown:
                    shown = line
                    yield [*[SKIP] * 4, line, *[SKIP] * (N_OUTPUTS - 5)]
            yield self._outcome(run)
        finally:
            run.stop.set()

    def stop(self, request: gr.Request) -> Any:
        """Throw the switch; the experiment ends itself after the piece it is at."""
        self._context.lab_runs.stop(str(request.session_hash))
        return gr.Button(interactive=False)

    def csv(self, request: gr.Request, run_id: str) -> Any:
        """The tables as a file that the browser keeps."""
        return self._file(request, run_id, "csv")

    def json(self, request: gr.Request, run_id: str) -> Any:
        """Everything that was found, as a file that the browser keeps."""
        return self._file(request, run_id, "json")

    def _file(self, request: gr.Request, run_id: str, kind: str) -> Any:
        run = self._context.lab_runs.get(run_id, str(request.session_hash))
        if run is None or run.result is None:
            return SKIP
        # the same file twice is two downloads: the id makes the value a new one
        return encode(lab_views.download(run.result, kind) | {"id": uuid.uuid4().hex})

    def _perform(self, run: LabRun) -> Any:
        model = self._context.loader.get(run.model)
        return self._context.lab.perform(model, run.experiment, run.settings, stop=run.stop)

    def _line(self, run: LabRun) -> dict[str, Any]:
        if (waiting := place_notice(self._context.hosting.line, run.stop)) is not None:
            return waiting
        state = self._context.loader.state(run.model)
        return lab_views.progress_notice(run, load_notice(state), is_loaded=state.phase == "ready")

    def _outcome(self, run: LabRun) -> list[Any]:
        ended = [gr.Button(interactive=False)]
        line = encode(self._line(run))
        if run.result is None:
            return [SKIP, *ended, SKIP, SKIP, line, *[SKIP] * (N_OUTPUTS - 5)]
        files = [gr.Button(interactive=True)] * 2
        views: Sequence[dict[str, Any]] = [
            lab_views.finding(run.result), *lab_views.plots(run.result), lab_views.tables(run.result),
        ]  # fmt: skip
        return [run.id, *ended, *files, line, *(encode(view) for view in views)]
