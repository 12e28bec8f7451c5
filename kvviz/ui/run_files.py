"""The runs of the Run tab saved as a file, and a file shown in their place without a model.

Knows the store of runs and reports; does not know the layout. All tabs that show the newest run show an
opened one by the same builders.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gradio as gr

from kvviz.errors import KvvizError
from kvviz.report import Report, read
from kvviz.ui.atlas import session_of
from kvviz.ui.context import AppContext
from kvviz.ui.files import OpenedRun, offered, refusal
from kvviz.ui.handlers import RunHandlers, read_choice
from kvviz.ui.views import LETTERS


class RunFiles:
    """Bound to one application's context and to what fills the views of a run."""

    def __init__(self, context: AppContext, handlers: RunHandlers) -> None:
        self._context, self._handlers = context, handlers

    def save(self, kind: str, request: gr.Request, run_id: str) -> list[Any]:
        """The runs that are shown as a file of ``kind``: the file, and the notice if there is none."""
        return offered(lambda: self._report(session_of(request), run_id), kind, "kvviz-run")

    def _report(self, session: str, run_id: str) -> Report:
        """What is shown as a report; a stored one is the one that was read, with its own machine and time.

        Raises:
            KvvizError: there is no run, or it has not ended.
        """
        run = self._context.runs.get(run_id, session)
        if run is None:
            raise KvvizError("file_not_ended")
        if isinstance(run, OpenedRun):
            return run.report
        records = run.snapshot()
        return Report(self._context.summarize(records, run.created), tuple(records))

    def open(self, request: gr.Request, event: gr.EventData, *values: Any) -> list[Any]:
        """Show what a file holds in place of what is shown; a file that is none changes nothing."""
        try:
            report = read(str(event.content))
            if len(report.records) != len(LETTERS):
                entries = len(report.comparison.entries)
                raise KvvizError("file_not_two", entries=entries, records=len(report.records))
        except KvvizError as error:
            return self._handlers.told(refusal(error))
        run = OpenedRun(session_of(request), report)
        run.choice = replace(read_choice(values), step=None)
        self._context.desks.get(run.session).stop.set()  # nothing more is recomputed for what was shown
        self._context.runs.add(run)
        return self._handlers.whole(run)
