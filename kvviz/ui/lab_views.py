"""An experiment's progress and result as values of the page's live views.

Knows results, figures and words; does not know gradio.
"""

from __future__ import annotations

import base64
import io
import zipfile
from typing import Any

from kvviz.catalogue import text
from kvviz.experiment import Cell, LabProgress, LabResult, Table, Unit
from kvviz.figures.lab import MOST_PANELS, lab_panels
from kvviz.ui.lab_runs import LabRun
from kvviz.ui.times import about
from kvviz.ui.views import notice
from kvviz.units import format_bytes, format_count, format_ms, format_number, format_share

EMPTY_PLOT: dict[str, Any] = {"name": "", "figure": None}


def progress_notice(run: LabRun, loading: dict[str, Any], *, is_loaded: bool) -> dict[str, Any]:
    """The line under an experiment's Run button. ``loading`` is the notice of the model on its way."""
    if run.error:
        return notice(run.error, "error")
    if run.result is not None:
        return notice(text("ui.lab.took", time=format_ms(run.result.elapsed_ms)))
    if run.stop.is_set():
        return notice(text("ui.phase.stopping"), "busy")
    if run.progress is None:
        return notice(text("ui.phase.waiting"), "busy") if is_loaded else loading
    return notice(progress_words(run.progress), "busy", run.progress.done / max(1, run.progress.total))


def progress_words(progress: LabProgress) -> str:
    """How far, and about how much longer."""
    read = text("ui.lab.read", done=format_count(progress.done), total=format_count(progress.total))
    if progress.eta_ms is None:
        return read
    return f"{read} · {text('ui.lab.left', time=about(progress.eta_ms))}"


def finding(result: LabResult | None) -> dict[str, Any]:
    """The sentence that says what was found, with its model."""
    if result is None:
        return notice()
    return notice(result.finding)


def plots(result: LabResult | None) -> list[dict[str, Any]]:
    """``MOST_PANELS`` plot values; unused ones are empty."""
    if result is None:
        return [EMPTY_PLOT] * MOST_PANELS
    shown = []
    for panel in lab_panels(result):
        title = text(f"lab.{result.experiment}.panel.{panel.key}.title")
        value = {"name": title, "heading": title, "figure": panel.payload}
        named = result.configurations and any("customdata" in trace for trace in panel.payload["data"])
        shown.append(value | {"points": True} if named else value)
    return [*shown, *[EMPTY_PLOT] * (MOST_PANELS - len(shown))]


def tables(result: LabResult | None) -> dict[str, Any]:
    """All tables, the first one open."""
    if result is None:
        return {"tables": []}
    return {
        "tables": [
            table_value(table_title(name), table) | {"open": i == 0}
            for i, (name, table) in enumerate(result.tables.items())
        ]
    }


def table_title(name: str) -> str:
    """A table's heading."""
    return text(f"lab.table.{name}")


def table_value(title: str, table: Table) -> dict[str, Any]:
    """Headings with explanations, shown cells, and the plain numbers they sort by."""
    columns = [
        {
            "label": text(f"lab.column.{column.key}.label"),
            "info": text(f"lab.column.{column.key}.info"),
            "number": column.unit != "text",
        }
        for column in table.columns
    ]
    cells = [
        [cell_words(cell, column.unit) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    return {"title": title, "columns": columns, "cells": cells, "sort": [list(row) for row in table.rows]}


def cell_words(cell: Cell, unit: Unit) -> str:
    """One cell as people read it."""
    if cell is None:
        return "–"
    if isinstance(cell, (str, bool)) or unit == "text":
        return str(cell)
    match unit:
        case "count":
            return format_count(int(cell))
        case "share":
            return format_share(cell)
        case "bytes":
            return format_bytes(cell)
        case "ms":
            return format_ms(cell)
        case _:
            return format_number(cell)


def download(result: LabResult, kind: str) -> dict[str, Any]:
    """A file for the browser to keep: ``json``, or ``csv`` (several tables come zipped)."""
    name = f"kvviz-{result.experiment}"
    if kind == "json":
        return file_value(f"{name}.json", "application/json", result.to_json().encode())
    files = result.to_csv()
    if len(files) == 1:
        (content,) = files.values()
        return file_value(f"{name}.csv", "text/csv", content.encode())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in files.items():
            archive.writestr(file, content)
    return file_value(f"{name}-csv.zip", "application/zip", packed.getvalue())


def file_value(name: str, mime: str, content: bytes) -> dict[str, Any]:
    """A file as the value of a :func:`kvviz.ui.components.file_offer`."""
    return {"name": name, "mime": mime, "base64": base64.b64encode(content).decode()}
