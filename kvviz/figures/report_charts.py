"""The still charts of a report: bytes by tier, shares of attention, quantization error, loss along the text.

Knows comparisons and records; measures nothing. A chart whose numbers are not there is not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvviz.catalogue import text
from kvviz.comparison import Comparison
from kvviz.events import MASS_TIERS, Tier
from kvviz.figures.quant_error import quant_error_data
from kvviz.figures.svg import Bar, Line, Part, lines, stacked_bars
from kvviz.figures.theme import palette, run_letter, tier_name
from kvviz.figures.tier_mass import tier_mass_summary
from kvviz.record import RunRecord
from kvviz.report import Report
from kvviz.units import format_bytes, format_share

_MOST_POINTS = 120


@dataclass(frozen=True, slots=True)
class Chart:
    """``svg`` with its words; ``note`` tells the kind of its numbers."""

    title: str
    svg: str
    note: str


def charts(report: Report) -> list[Chart]:
    """All that can be drawn of a report."""
    comparison = report.comparison
    found = [_bytes(comparison), _mass(report), _error(report), _loss(comparison)]
    return [chart for chart in found if chart is not None]


def _kind(comparison: Comparison) -> str:
    return text("figures.kind.stored" if comparison.is_stored else "figures.kind.measured")


def _chart(name: str, svg: str, kind: str) -> Chart:
    return Chart(text(f"report.chart.{name}.title"), svg, text(f"report.chart.{name}.note", kind=kind))


def _bytes(comparison: Comparison) -> Chart | None:
    bars = []
    for index, entry in enumerate(comparison.entries):
        memory = entry.generation.memory or (entry.score.memory if entry.score else None)
        if memory is None:
            continue
        parts = [
            Part(
                f"{tier_name(tier.value)}, {text(f'figures.location.{location}')}",
                float(sum(tiers[tier.value].values())),
                palette().tiers[tier.value].color,
                hatched=location != "device",
            )
            for tier in Tier
            for location, tiers in memory.used.items()
            if tier.value in tiers
        ]
        full = comparison.model.kv_bytes_per_token(2) * memory.tokens
        bars.append(Bar(_name(index, entry.label), tuple(parts), format_bytes(memory.used_bytes), full))
    if not bars:
        return None
    title = text("report.chart.bytes.title")
    return _chart("bytes", stacked_bars(title, bars, text("report.chart.bytes.mark")), _kind(comparison))


def _mass(report: Report) -> Chart | None:
    bars = []
    for index, record in enumerate(report.records):
        means = tier_mass_summary(record).mean
        known = means[~np.isnan(means).any(axis=1)]
        if not len(known):
            continue
        shares = known.mean(axis=0)
        parts = tuple(
            Part(f"{tier_name(tier)} ", float(share), palette().tiers[tier.value].color)
            for tier, share in zip(MASS_TIERS, shares, strict=True)
        )
        words = format_share(float(shares[MASS_TIERS.index(Tier.SINK)]))
        bars.append(Bar(_name(index, record.label), parts, words))
    if not bars:
        return None
    return _chart("mass", stacked_bars(text("report.chart.mass.title"), bars), _kind(report.comparison))


def _error(report: Report) -> Chart | None:
    rows: list[Line] = []
    for index, record in enumerate(report.records):
        data = quant_error_data(record)
        if data is None:
            continue
        for side, dash in (("key", ""), ("value", "5 4")):
            values = getattr(data, side)
            if not values.is_exact:
                name = text(f"report.chart.error.{side}", letter=run_letter(index))
                y = tuple(float(v) for v in values.layer)
                rows.append(Line(name, y, palette().run(index).color, dash))
    if not rows:
        return None
    layers = list(range(len(rows[0].y)))
    svg = lines(
        text("report.chart.error.title"),
        rows,
        layers,
        text("figures.axis.layer"),
        text("report.chart.error.axis"),
        percent=True,
    )
    return _chart("error", svg, _kind(report.comparison))


def _loss(comparison: Comparison) -> Chart | None:
    """Mean KL of neighbouring rows, so that a long text stays a readable line."""
    scored = [(i, e.score) for i, e in enumerate(comparison.entries) if e.score is not None]
    if comparison.text is None or not scored or not comparison.text.rows:
        return None
    size = max(1, -(-comparison.text.rows // _MOST_POINTS))
    rows = [
        Line(
            _name(i, comparison.entries[i].label),
            tuple(_means(score.kl_rows, size)),
            palette().run(i).color,
            _dash(i),
        )
        for i, score in scored
    ]
    first = comparison.text.tokens - 1 - comparison.text.rows
    x = [first + size * n for n in range(len(rows[0].y))]
    svg = lines(
        text("report.chart.loss.title"), rows, x, text("report.chart.loss.x"), text("report.chart.loss.axis")
    )
    chart = _chart("loss", svg, _kind(comparison))
    return Chart(chart.title, chart.svg, chart.note + " " + text("report.chart.loss.joined", rows=size))


def _means(values: Sequence[float], size: int) -> list[float]:
    return [float(np.mean(values[i : i + size])) for i in range(0, len(values), size)]


def _dash(index: int) -> str:
    return ("", "7 4", "2 3", "8 3 2 3")[index % 4]


def _name(index: int, label: str) -> str:
    """``A: full precision``, short enough to stand beside a bar."""
    words = f"{run_letter(index)}: {label}" if label else run_letter(index)
    return words if len(words) <= 22 else words[:21] + "…"


def record_of_entry(comparison: Comparison, index: int) -> RunRecord:
    """A configuration's text and tokens as a record, as far as a comparison keeps them."""
    made = comparison.entries[index].generation
    return RunRecord(
        status=made.status,
        config={"label": comparison.entries[index].label},
        generated_ids=list(made.token_ids),
        labels=made.token_labels,
        text=made.text,
        message=made.message,
    )
