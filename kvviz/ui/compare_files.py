"""A comparison saved as a file that the browser keeps, and a file that is shown again without a model.

Knows reports and the store of comparisons; does not know the layout.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.errors import KvvizError
from kvviz.figures.theme import run_letter
from kvviz.report import Report, read
from kvviz.ui import compare_views
from kvviz.ui.atlas import SKIP, session_of
from kvviz.ui.compare_views import VIEWS, MapChoice
from kvviz.ui.components import encode
from kvviz.ui.context import AppContext
from kvviz.ui.files import OpenedRun, offered, refusal
from kvviz.ui.views import notice

#: Outputs of :meth:`CompareFiles.open` before the views: run id, notice, first, second, row, map notice.
N_OPEN_CONTROLS = 6


class CompareFiles:
    """Bound to one application's context."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    def save(self, kind: str, request: gr.Request, run_id: str) -> list[Any]:
        """The comparison that is shown as a file of ``kind``: the file, and the notice if there is none."""
        return offered(lambda: self._report(session_of(request), run_id), kind, "kvviz-comparison")

    def _report(self, session: str, run_id: str) -> Report:
        run = self._context.comparisons.get(run_id, session)
        result = getattr(run, "result", None)
        if run is None or result is None:
            raise KvvizError("file_no_comparison")
        return Report(result, tuple(run.snapshot()))

    def open(self, request: gr.Request, event: gr.EventData) -> list[Any]:
        """Show what a file holds in place of what is shown; a file that is none changes nothing."""
        try:
            report = read(str(event.content))
        except KvvizError as error:
            return [SKIP, refusal(error), *[SKIP] * (N_OPEN_CONTROLS - 2 + len(VIEWS))]
        run = OpenedRun(session_of(request), report)
        self._context.comparisons.add(run)
        self._context.comparisons.settle(run)
        return _shown(run, report)


def _shown(run: OpenedRun, report: Report) -> list[Any]:
    records, choice = list(report.records), MapChoice()
    views = (
        compare_views.panels(records, report.comparison, has_maps=False)
        | compare_views.charts(report.comparison)
        | compare_views.tables(report.comparison)
        | compare_views.maps(records, choice)
    )
    names = [(run_letter(i), str(i)) for i in range(len(report.comparison.entries))]
    told = run.remarks if records else f"{run.remarks} {text('compare.file.no_texts')}"
    second = min(1, len(names) - 1)
    return [
        run.id,
        encode(notice(told)),
        gr.Radio(choices=names, value="0"),
        gr.Radio(choices=names, value=str(second)),
        None,
        encode(compare_views.map_notice(records, choice)),
        *(encode(views[name]) for name in VIEWS),
    ]
