"""What is shown as a file that the browser keeps, and a file that is shown again without a model.

Knows reports and how a file reaches a browser; does not know what a tab makes of them. What somebody opens is
text of a report and nothing else: no path, no address and no model's name in it is ever followed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from kvviz.catalogue import text
from kvviz.config import RunConfig
from kvviz.errors import KvvizError
from kvviz.figures.report_page import report_page
from kvviz.report import Report, to_csv, to_json
from kvviz.ui.atlas import SKIP
from kvviz.ui.components import encode
from kvviz.ui.lab_views import file_value
from kvviz.ui.runs import LiveRun
from kvviz.ui.views import notice
from kvviz.units import format_ms

_MAKERS: Mapping[str, Callable[[Report], str]] = {"html": report_page, "json": to_json, "csv": to_csv}
_MIMES = {"html": "text/html", "json": "application/json", "csv": "text/csv"}


class OpenedRun(LiveRun):
    """What was read from a file, over before it begins: nothing in it was measured now. It names no model
    that could be loaded."""

    def __init__(self, session: str, report: Report) -> None:
        super().__init__(session, "", [RunConfig.from_dict(record.config) for record in report.records])
        self.report, self.result = report, report.comparison
        self._records = list(report.records)
        self.is_stored = True
        self.remarks = stored_words(report)
        self.finish()


def stored_words(report: Report) -> str:
    """When, on what and by which versions it was made."""
    made = report.comparison
    return text(
        "ui.file.stored",
        created=made.created,
        model=f"{made.model.name} · {made.model.device} {made.model.dtype} · {made.model.weights_hash}",
        machine=made.machine.processor,
        version=made.versions.get("kvviz", "?"),
        took=format_ms(made.elapsed_ms),
    )


def refusal(error: KvvizError) -> str:
    """The line that says why nothing was saved or opened."""
    return encode(notice(str(error), "error"))


def offered(report: Callable[[], Report], kind: str, stem: str) -> list[Any]:
    """A report as a file of ``kind`` for the browser, made now: the file, and the notice if there is none."""
    try:
        content = _MAKERS[kind](report())
    except KvvizError as error:
        return [SKIP, refusal(error)]
    file = file_value(f"{stem}.{kind}", _MIMES[kind], content.encode())
    # the same file twice is two downloads: the id makes the value a new one
    return [encode(file | {"id": uuid.uuid4().hex}), SKIP]
