"""``report``: a saved comparison or report as a table, CSV, JSON or one page; needs no model.

Knows files and reports; how a page looks is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kvviz.errors import KvvizError
from kvviz.report import MOST_BYTES, Report, read, to_csv, to_json

Page = Callable[[Report], str]


def load(path: str) -> Report:
    """The report in a file; no more of it is read than a report may be long.

    Raises:
        KvvizError: it cannot be read, or holds no report.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise KvvizError("file_large", most=MOST_BYTES)
        return read(content.decode())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "UTF-8"
        raise KvvizError("file_read", path=path, reason=reason) from error


def write(report: Report, path: str, page: Page) -> None:
    """The report as what the name ends with: ``.csv``, ``.json``, or a page.

    Raises:
        KvvizError: it does not fit, or cannot be written.
    """
    makers: dict[str, Page] = {".csv": to_csv, ".json": to_json}
    content = makers.get(Path(path).suffix.lower(), page)(report)
    try:
        Path(path).write_text(content, encoding="utf-8")
    except OSError as error:
        raise KvvizError("file_write", path=path, reason=error.strerror) from error
