"""A report: a comparison and, where there are any, the records of its runs, as JSON, CSV, or inside a page.

The JSON is that of a comparison with ``records`` beside it, so whoever reads comparisons reads reports. A
report is text of at most :data:`MOST_BYTES`, so that it can be loaded back. Reading trusts nothing: no
pickle, no evaluation, exact kinds and shapes. Knows no drawing and no page.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass, replace
from typing import Any

from kvviz.array_text import Allowance
from kvviz.comparison import Comparison
from kvviz.comparison_words import measure_info, measure_label
from kvviz.config import CacheConfig, RunConfig
from kvviz.errors import KvvizError
from kvviz.record import RunRecord
from kvviz.record_text import from_text, to_text
from kvviz.units import format_count

#: The largest text that is read, in bytes of UTF-8; no larger one is written.
MOST_BYTES = 1_000_000
#: What the arrays of one file may take in memory.
MOST_UNPACKED_BYTES = 96 << 20
#: Where a page carries its report. ``<`` is written as an escape, so that nothing in it ends the element.
OPENING, CLOSING = '<script type="application/json" id="kvviz-report">', "</script>"
CSV_COLUMNS = ("configuration", "label", "key", "name", "value", "unit", "kind", "how")
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Report:
    """``records`` are those of the comparison's entries, in their order, or none at all."""

    comparison: Comparison
    records: tuple[RunRecord, ...] = ()


def to_json(report: Report, most_bytes: int = MOST_BYTES) -> str:
    """One JSON object without ``<``; records with as many steps as fit.

    Raises:
        KvvizError: it does not fit, or a run has not ended.
    """
    plain = report.comparison.to_dict()
    if report.records:
        room = most_bytes - len(_dumped(plain).encode()) - 100
        plain["records"] = to_text(report.records, room)
    content = _dumped(plain)
    if len(content.encode()) > most_bytes:
        raise KvvizError("file_large", most=format_count(MOST_BYTES))
    return content


def _dumped(plain: Any) -> str:
    words = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return words.replace("<", "\\u003c")


def read(content: str) -> Report:
    """What :func:`to_json` wrote, alone or inside a page that carries it. Its numbers are ``stored``.

    Raises:
        KvvizError: too large, no report, or one that breaks a rule.
    """
    if len(content.encode("utf-8", "replace")) > MOST_BYTES:
        raise KvvizError("file_large", most=format_count(MOST_BYTES))
    body = content.lstrip("\ufeff \t\r\n")
    if not body.startswith("{"):
        body = _inside_page(body)
    comparison = Comparison.from_json(body)
    plain = json.loads(body).get("records", [])
    if not isinstance(plain, list) or len(plain) not in (0, len(comparison.entries)):
        raise KvvizError("file_wrong", reason="records")
    allowance = Allowance(MOST_UNPACKED_BYTES)
    records = tuple(from_text(entry, allowance) for entry in plain)
    if records:
        _check_together(comparison, records)
    return Report(comparison, records)


def _inside_page(content: str) -> str:
    found = re.findall(re.escape(OPENING) + r"([^<]*)" + re.escape(CLOSING), content)
    if len(found) != 1:
        raise KvvizError("file_none")
    return str(found[0])


def _check_together(comparison: Comparison, records: tuple[RunRecord, ...]) -> None:
    """The records are of the same model, settings and tokens that the comparison tells of."""
    for entry, record in zip(comparison.entries, records, strict=True):
        config = RunConfig.from_dict(record.config)
        same = (
            record.prompt_ids == records[0].prompt_ids
            and record.model == comparison.model
            and config.cache == CacheConfig.from_dict(entry.cache)
            and config.prompt == comparison.asked.prompt
            and tuple(record.generated_ids) == entry.generation.token_ids
        )
        if not same:
            raise KvvizError("file_wrong", reason="records")


def stored(report: Report) -> Report:
    """The same as it will be when it is read again: nothing in it is measured now."""
    return Report(
        replace(report.comparison, is_stored=True),
        tuple(replace(record, is_stored=True) for record in report.records),
    )


def to_csv(report: Report) -> str:
    """Every number of the table with its unit, its kind, and how it came about; measures that nobody has are
    left out."""
    comparison = report.comparison
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    dtype = comparison.model.dtype
    for row in comparison.rows():
        if all(value is None for value in row.values):
            continue
        words = measure_label(row.measure, dtype), measure_info(row.measure, dtype)
        for index, (entry, value) in enumerate(zip(comparison.entries, row.values, strict=True)):
            cells = [chr(ord("A") + index), entry.label, row.measure.key, words[0], value]
            writer.writerow([_plain_cell(c) for c in [*cells, row.measure.unit, row.kind, words[1]]])
    return out.getvalue()


def _plain_cell(value: Any) -> Any:
    """Words that a spreadsheet would take for a formula get an apostrophe in front."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_SIGNS) else value
