"""A comparison saved as a file that the browser keeps, and a file that is shown again without a model.

Knows reports and the store of comparisons; does not know the layout. What somebody opens is text of a report
and nothing else: no path and no address in it is ever followed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.errors import KvvizError
from kvviz.figures.report_page import report_page
from kvviz.figures.theme import run_letter
from kvviz.report import Report, read, to_csv, to_json
from kvviz.ui import compare_views
from kvviz.ui.atlas import SKIP, session_of
from kvviz.ui.compare_views import VIEWS, MapChoice
from kvviz.ui.comparison_runs import OpenedComparison
from kvviz.ui.components import encode
from kvviz.ui.context import AppContext
from kvviz.ui.lab_views import file_value
from kvviz.ui.views import notice
from kvviz.units import format_ms

KINDS = ("html", "json", "csv")
_MAKERS: Mapping[str, Callable[[Report], str]] = {"html": report_page, "json": to_json, "csv": to_csv}
_MIMES = {"html": "text/html", "json": "application/json", "csv": "text/csv"}
#: Outputs of :meth:`CompareFiles.open` before the views: run id, notice, first, second, row, map notice.
N_OPEN_CONTROLS = 6


class CompareFiles:
    """Bound to one application's context."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    def save(self, kind: str, request: gr.Request, run_id: str) -> list[Any]:
        """The comparison that is shown as a file of ``kind``: the file, and the notice if there is none."""
        run = self._context.comparisons.get(run_id, session_of(request))
        result = getattr(run, "result", None)
        try:
            if run is None or result is None:
                raise KvvizError("file_no_comparison")
            content = _MAKERS[kind](Report(result, tuple(run.snapshot())))
        except KvvizError as error:
            return [SKIP, encode(notice(str(error), "error"))]
        file = file_value(f"kvviz-comparison.{kind}", _MIMES[kind], content.encode())
        # the same file twice is two downloads: the id makes the value a new one
        return [encode(file | {"id": uuid.uuid4().hex}), SKIP]

    def open(self, request: gr.Request, event: gr.EventData) -> list[Any]:
        """Show what a file holds in place of what is shown; a file that is none changes nothing."""
        try:
            report = read(str(event.content))
        except KvvizError as error:
            line = encode(notice(str(error), "error"))
            return [SKIP, line, *[SKIP] * (N_OPEN_CONTROLS - 2 + len(VIEWS))]
        run = OpenedComparison(session_of(request), report)
        self._context.comparisons.add(run)
        self._context.comparisons.settle(run)
        return _shown(run, report)


def _shown(run: OpenedComparison, report: Report) -> list[Any]:
    records, choice = list(report.records), MapChoice()
    views = (
        compare_views.panels(records, report.comparison, has_maps=False)
        | compare_views.charts(report.comparison)
        | compare_views.tables(report.comparison)
        | compare_views.maps(records, choice)
    )
    names = [(run_letter(i), str(i)) for i in range(len(report.comparison.entries))]
    second = min(1, len(names) - 1)
    return [
        run.id,
        encode(notice(_told(report))),
        gr.Radio(choices=names, value="0"),
        gr.Radio(choices=names, value=str(second)),
        None,
        encode(compare_views.map_notice(records, choice)),
        *(encode(views[name]) for name in VIEWS),
    ]


def _told(report: Report) -> str:
    """When, on what and by which versions it was made."""
    made = report.comparison
    said = text(
        "compare.file.stored",
        created=made.created,
        model=f"{made.model.name} · {made.model.device} {made.model.dtype} · {made.model.weights_hash}",
        machine=made.machine.processor,
        version=made.versions.get("kvviz", "?"),
        took=format_ms(made.elapsed_ms),
    )
    return said if report.records else f"{said} {text('compare.file.no_texts')}"
