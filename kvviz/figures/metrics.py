"""The numbers beside a run: times, bytes, bits, each with its kind and, if computed, its formula.

Knows what a record remembers; measures nothing itself.
"""

from __future__ import annotations

from typing import NamedTuple

from kvviz.catalogue import text
from kvviz.figures.memory import memory_bar
from kvviz.record import RunRecord
from kvviz.units import format_bits, format_bytes, format_count, format_ms, format_rate, format_ratio

_DASH = "–"


class Metric(NamedTuple):
    """One number: ``kind`` is ``measured``, ``computed`` or ``stored``; ``note`` says how it came about."""

    name: str
    value: str
    kind: str
    note: str
    key: str


def metrics_data(record: RunRecord) -> list[Metric]:
    """The numbers of one run, always the same rows; an en dash where nothing is known.

    All are ``stored`` when the record was loaded: nothing in it was measured now.
    """
    bar = memory_bar(0, record)
    rate = 1000 / record.tpot_ms if record.tpot_ms else None
    n_generated = format_count(len(record.generated_ids)) if record.generated_ids else _DASH
    rows = [
        ("ttft", format_ms(record.ttft_ms), "measured"),
        ("tpot", format_ms(record.tpot_ms), "measured"),
        ("rate", format_rate(rate), "computed"),
        ("generated", n_generated, "measured"),
        ("kv_bytes", format_bytes(bar.used_bytes) if bar else _DASH, "measured"),
        ("ratio_16bit", format_ratio(bar.ratio_16bit if bar else None), "computed"),
        ("ratio_own", format_ratio(bar.ratio_own if bar else None), "computed"),
        ("effective_bits", format_bits(bar.effective_bits if bar else None), "measured"),
        ("cache_bits", format_bits(bar.cache_bits if bar else None), "measured"),
    ]
    values = {"dtype": record.model.dtype if record.model else _DASH}
    return [
        Metric(
            name=text(f"figures.metric.{key}.name", **values),
            value=value,
            kind="stored" if record.is_stored else kind,
            note=text(f"figures.metric.{key}.note", **values),
            key=key,
        )
        for key, value, kind in rows
    ]


def status_sentence(record: RunRecord) -> str:
    """One sentence on where the run stands."""
    return text(
        f"figures.status.{record.status}",
        done=format_count(record.prefill_tokens),
        total=format_count(len(record.prompt_ids)),
        generated=format_count(len(record.generated_ids)),
        message=record.message,
    )
