"""What a run's offloading came to: sentences and tables, measured, and computed for other links.

Knows records and sums of :mod:`kvviz.timeline`; draws nothing.
"""

from __future__ import annotations

from typing import Any

from kvviz.catalogue import text
from kvviz.events import TIMELINE_KINDS, StepTimeline
from kvviz.figures.theme import run_letter
from kvviz.figures.timeline import empty_sentence, step_of, timeline_at
from kvviz.record import RunRecord
from kvviz.timeline import CARRIED, LINKS, Costs, Link, costs, link_times
from kvviz.units import format_bytes, format_count, format_ms, format_share


def decode_costs(record: RunRecord) -> Costs | None:
    """All steps but the prompt's."""
    return costs(record.timelines[1:])


def sentences(record: RunRecord, index: int, step: int | None) -> list[str]:
    """What a step and all decode steps came to, and what is not as it could be."""
    timeline = timeline_at(record, step)
    if timeline is None:
        return [empty_sentence(record)]
    shown, decode = costs([timeline]), decode_costs(record)
    assert shown is not None
    at = step_of(record, step)
    said = [
        text(
            f"offload.said.{'prompt' if at == 0 else 'step'}",
            letter=run_letter(index),
            step=format_count(at),
            last=format_count(len(record.timelines) - 1),
            rows=format_count(shown.rows),
            total=format_ms(shown.total_ms),
            compute=format_ms(shown.ms["compute"]),
            carried_in=format_bytes(shown.n_bytes["copy_in"]),
            carried_out=format_bytes(shown.n_bytes["copy_out"]),
        ),
        _overlap(shown),
    ]
    if decode is not None:
        said.append(
            text(
                "offload.said.decode",
                steps=format_count(decode.steps),
                carried_in=format_bytes(decode.bytes_per_token("copy_in")),
                carried_out=format_bytes(decode.bytes_per_token("copy_out")),
                overlap=format_share(decode.overlap),
            )
        )
        handed = decode.bytes_per_token("host_attention")
        said += [text("offload.said.handed", handed=format_bytes(handed))] if handed else []
    return [*said, *(text(f"offload.note.{note}") for note in shown.notes)]


def _overlap(shown: Costs) -> str:
    if shown.overlap is None:
        return text("offload.said.no_copy")
    return text("offload.said.overlap", overlap=format_share(shown.overlap), copying=format_ms(shown.copy_ms))


def link_sentence(timeline: StepTimeline, link: Link, kind: str = "measured") -> str:
    """What a link would take for a step, and whether that would hide; ``kind`` of the recorded times."""
    times = link_times(timeline, link)
    shown = costs([timeline])
    assert shown is not None
    values = {
        "link": link.name,
        "rate": rate(link),
        "carried_in": format_bytes(shown.n_bytes["copy_in"]),
        "carried_out": format_bytes(shown.n_bytes["copy_out"]),
        "in_ms": format_ms(times.in_ms),
        "out_ms": format_ms(times.out_ms),
        "compute": format_ms(shown.ms["compute"]),
        "waits": format_ms(times.waits_ms),
        "hidden": format_share(times.hidden),
        "handed": format_bytes(shown.n_bytes["host_attention"]),
        "handed_ms": format_ms(times.handed_ms),
        "kind": text(f"figures.kind.{kind}"),
    }
    if shown.n_bytes["host_attention"] and not shown.n_bytes["copy_in"]:
        return text("offload.link.handed", **values)
    return text(f"offload.link.{'nothing' if times.hidden is None else 'said'}", **values)


def rate(link: Link) -> str:
    """``31.5 GB/s``."""
    return f"{link.bytes_per_s / 1e9:g} GB/s"


def kind_table(record: RunRecord, step: int | None) -> dict[str, Any] | None:
    """Time and bytes by kind: the step, a mean decode step, the prompt. None without a timeline."""
    shown = costs([timeline_at(record, step)])
    if shown is None:
        return None
    decode, prompt = decode_costs(record), costs(record.timelines[:1])
    cells: list[list[str]] = []
    sort: list[list[Any]] = []
    for kind in TIMELINE_KINDS:
        if not any(found.n_spans[kind] for found in (shown, decode, prompt) if found is not None):
            continue
        carries = kind in CARRIED
        row = [
            text(f"offload.kind.{kind}.name"),
            shown.ms[kind],
            shown.ms[kind] / shown.total_ms if shown.total_ms else None,
            shown.n_bytes[kind] if carries else None,
            decode.ms[kind] / decode.steps if decode else None,
            decode.bytes_per_token(kind) if decode and carries else None,
            prompt.ms[kind] if prompt else None,
            prompt.bytes_per_token(kind) if prompt and carries else None,
        ]
        sort.append(row)
        cells.append([_cell(value, unit) for value, unit in zip(row, _KIND_UNITS, strict=True)])
    return _table("kinds", list(_KIND_COLUMNS), cells, sort, record.kind)


_KIND_COLUMNS = {
    "kind": "text", "step_ms": "ms", "step_share": "share", "step_bytes": "bytes", "decode_ms": "ms",
    "decode_bytes": "bytes", "prompt_ms": "ms", "prompt_bytes": "bytes",
}  # fmt: skip
_KIND_UNITS = tuple(_KIND_COLUMNS.values())
_LINK_COLUMNS = {
    "link": "text", "in_ms": "ms", "out_ms": "ms", "handed_ms": "ms", "waits_ms": "ms", "hidden": "share",
}  # fmt: skip


def link_table(record: RunRecord, step: int | None) -> dict[str, Any] | None:
    """Every link for the step's bytes, computed; columns of nothing but zeros are left out. None without a
    timeline."""
    timeline = timeline_at(record, step)
    if timeline is None:
        return None
    rows = []
    for link in LINKS:
        times = link_times(timeline, link)
        numbers = (times.in_ms, times.out_ms, times.handed_ms, times.waits_ms, times.hidden)
        values = (f"{link.name}, {rate(link)}", *numbers)
        rows.append(dict(zip(_LINK_COLUMNS, values, strict=True)))
    columns = [name for name in _LINK_COLUMNS if any(row[name] for row in rows)]
    sort = [[row[name] for name in columns] for row in rows]
    cells = [[_cell(row[name], _LINK_COLUMNS[name]) for name in columns] for row in rows]
    return _table("links", columns, cells, sort, record.kind)


def _cell(value: Any, unit: str) -> str:
    if value is None:
        return "–"
    match unit:
        case "ms":
            return format_ms(value)
        case "share":
            return format_share(value)
        case "bytes":
            return format_bytes(value)
        case _:
            return str(value)


def _table(
    name: str, columns: list[str], cells: list[list[str]], sort: list[list[Any]], kind: str
) -> dict[str, Any]:
    """``kind`` of what was recorded: ``measured`` or ``stored``."""
    said = {"kind": text(f"figures.kind.{kind}")}
    heads = [
        {
            "label": text(f"offload.column.{column}.label"),
            "info": text(f"offload.column.{column}.info", **said),
            "number": place > 0,
        }
        for place, column in enumerate(columns)
    ]
    return {
        "title": text(f"offload.table.{name}", **said),
        "columns": heads,
        "cells": cells,
        "sort": sort,
        "open": True,
    }
