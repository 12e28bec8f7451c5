"""A comparison as figures: quality, loss along the text, memory, speed. Every configuration on one scale.

Knows the numbers of a :class:`kvviz.comparison.Comparison` and nothing else, so that one that was loaded from
a file is drawn like one that was just measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from kvviz.catalogue import text
from kvviz.comparison import Comparison, Row
from kvviz.comparison_words import cell_words, measure_label
from kvviz.events import MemorySnapshot, Tier
from kvviz.figures.memory import PARTS, scale_of
from kvviz.figures.theme import (
    bottom_legend,
    empty_figure,
    escape,
    frame,
    palette,
    rgba,
    run_letter,
    tier_name,
    to_payload,
)
from kvviz.record import RunRecord

QUALITY = ("ppl", "kl", "top1")
SPEED = ("ttft_ms", "tpot_ms")
ROLLING_ROWS = 32
_BAR = 26  # pixels of one bar
_HEAD = 44  # pixels of a subplot besides its bars
_LINES_HEIGHT = 380
_ALPHA = {"codes": 0.9, "metadata": 0.45, "outliers": 0.65, "exact": 0.9}


def entry_record(comparison: Comparison, index: int) -> RunRecord:
    """One configuration's generation as a record, as far as a comparison keeps it: no prompt and no maps."""
    made = comparison.entries[index].generation
    return RunRecord(
        status=made.status,
        config={"label": comparison.entries[index].label, "cache": comparison.entries[index].cache},
        model=comparison.model,
        generated_ids=list(made.token_ids),
        labels=made.token_labels,
        text=made.text,
        step_ms=list(made.step_ms),
        memory=[] if made.memory is None else [made.memory],
        ttft_ms=made.ttft_ms,
        tpot_ms=made.tpot_ms,
        message=made.message,
        is_stored=comparison.is_stored,
    )


def letters(comparison: Comparison) -> list[str]:
    """``A``, ``B``, ... of its configurations."""
    return [run_letter(i) for i in range(len(comparison.entries))]


def rows_of(comparison: Comparison, keys: Sequence[str]) -> list[Row]:
    """Rows of the table by key."""
    by_key = {row.measure.key: row for row in comparison.rows()}
    return [by_key[key] for key in keys]


def spoken(comparison: Comparison, keys: Sequence[str]) -> str:
    """The numbers of a figure in words, for those who do not see it: ``Perplexity: A 11.71, B 11.72.``"""
    sentences = []
    for row in rows_of(comparison, keys):
        values = ", ".join(
            f"{letter} {cell_words(value, row.measure.unit)}"
            for letter, value in zip(letters(comparison), row.values, strict=True)
        )
        sentences.append(f"{measure_label(row.measure, comparison.model.dtype)}: {values}.")
    return " ".join(sentences)


# -- bars --------------------------------------------------------------------------------------------


def quality_figure(comparison: Comparison) -> dict[str, Any]:
    """Perplexity (with full precision's as a line), KL and top-1 agreement, as a payload."""
    if comparison.text is None:
        return to_payload(empty_figure("compare_quality", text("compare.figure.not_scored"), 200))
    figure = draw_bars(comparison, QUALITY, "compare_quality")
    line = {"color": palette().reference, "dash": "dash", "width": 2.5}
    figure.add_vline(x=comparison.text.ppl, row=1, col=1, line=line)
    figure.layout.annotations[0].text += escape(
        text("compare.figure.full_line", ppl=cell_words(comparison.text.ppl, "ppl"))
    )
    return to_payload(figure)


def speed_figure(comparison: Comparison) -> dict[str, Any]:
    """TTFT and TPOT, as a payload."""
    if all(row.values.count(None) == len(row.values) for row in rows_of(comparison, SPEED)):
        return to_payload(empty_figure("compare_speed", text("compare.figure.no_token"), 200))
    return to_payload(draw_bars(comparison, SPEED, "compare_speed"))


def draw_bars(comparison: Comparison, keys: Sequence[str], name: str) -> go.Figure:
    """One subplot a number, one bar a configuration, the number at its end."""
    rows = rows_of(comparison, keys)
    names = letters(comparison)
    titles = [escape(measure_label(row.measure, comparison.model.dtype)) for row in rows]
    height = len(rows) * (_HEAD + _BAR * len(names)) + 16
    gap = (_HEAD - 8) / (height - 60)
    figure = make_subplots(len(rows), 1, subplot_titles=titles, vertical_spacing=gap)
    for place, row in enumerate(rows, start=1):
        figure.add_trace(_bars(comparison, row), row=place, col=1)
        most = max((float(value) for value in row.values if value is not None), default=0.0) or 1.0
        figure.update_xaxes(range=[0, 1.22 * most], showticklabels=False, row=place, col=1)
    figure.update_xaxes(showgrid=False, zeroline=True)
    figure.update_yaxes(autorange="reversed", fixedrange=True, showgrid=False)
    for note in figure.layout.annotations:
        note.update(x=0, xanchor="left", font={"size": 13})
    margin = {"l": 8, "r": 8, "t": 30, "b": 8}
    return frame(figure, name, height, showlegend=False, bargap=0.25, margin=margin, dragmode=False)


def _bars(comparison: Comparison, row: Row) -> go.Bar:
    words = [cell_words(value, row.measure.unit) for value in row.values]
    kind = text(f"figures.kind.{row.kind}")
    return go.Bar(
        orientation="h",
        y=letters(comparison),
        x=[0.0 if value is None else float(value) for value in row.values],
        text=words,
        textposition="outside",
        cliponaxis=False,
        customdata=[escape(entry.label) for entry in comparison.entries],
        marker={"color": [palette().run(i).color for i in range(len(words))]},
        hovertemplate=f"<b>%{{y}}: %{{customdata}}</b><br>%{{text}}<extra>{kind}</extra>",
    )


# -- memory ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemorySegment:
    """Used bytes ``(C,)`` int64 of one tier, part and location, one for each configuration."""

    tier: str
    part: str
    location: str
    used: NDArray[np.int64]


def memory_segments(comparison: Comparison) -> list[MemorySegment]:
    """All that is not empty, in the order of the tiers."""
    memories = [entry.generation.memory for entry in comparison.entries]
    places = sorted({place for memory in memories if memory for place in memory.used})
    found = []
    for tier in Tier:
        for part, ledger in PARTS.items():
            for location in places:
                used = np.asarray(
                    [_used(memory, location, tier.value, ledger) for memory in memories], dtype=np.int64
                )
                if used.any():
                    found.append(MemorySegment(tier.value, part, location, used))
    return found


def _used(memory: MemorySnapshot | None, location: str, tier: str, parts: Sequence[str]) -> int:
    stored = memory.used.get(location, {}).get(tier, {}) if memory else {}
    return sum(stored.get(part, 0) for part in parts)


def bytes_figure(comparison: Comparison) -> dict[str, Any]:
    """The cache after the last step: a bar a configuration, by tier, and full precision in 16 bits beside it,
    as a payload."""
    segments = memory_segments(comparison)
    if not segments:
        return to_payload(empty_figure("compare_memory", text("compare.figure.no_token"), 200))
    return to_payload(draw_bytes(comparison, segments))


def draw_bytes(comparison: Comparison, segments: Sequence[MemorySegment]) -> go.Figure:
    """Stacked horizontal bars on one axis."""
    names = letters(comparison)
    (full,) = rows_of(comparison, ["full_16bit_bytes"])
    totals = np.sum([segment.used for segment in segments], axis=0)
    most = max(float(totals.max()), *(float(value or 0) for value in full.values))
    unit, size = scale_of(most)
    figure = go.Figure([_segment(comparison, segment, size) for segment in segments])
    figure.add_scatter(
        x=[None if value is None else value / size for value in full.values],
        y=names,
        name=text("figures.memory.full_16bit"),
        mode="markers",
        marker={
            "symbol": "line-ns",
            "size": 24,
            "line": {"color": palette().reference, "width": 4},
            "color": palette().reference,
        },
        customdata=[cell_words(value, "bytes") for value in full.values],
        hovertemplate=f"<b>%{{y}}</b><br>{text('figures.memory.full_16bit')}<br>%{{customdata}}"
        + f"<extra>{text(f'figures.kind.{full.kind}')}</extra>",
    )
    (used,) = rows_of(comparison, ["kv_bytes"])
    for i, name in enumerate(names):
        figure.add_annotation(
            x=max(float(totals[i]), float(full.values[i] or 0)) / size, y=name, xanchor="left",
            text=cell_words(used.values[i], "bytes"), showarrow=False, xshift=8, font={"size": 13},
        )  # fmt: skip
    axis = text("figures.memory.axis", unit=unit, kind=text(f"figures.kind.{used.kind}"))
    figure.update_xaxes(title_text=axis, range=[0, 1.32 * most / size], title_standoff=6)
    figure.update_yaxes(
        autorange="reversed", fixedrange=True, showgrid=False, categoryorder="array", categoryarray=names
    )
    plot, below = 44 * len(names) + 20, 50 + 22 * (len(segments) + 1)
    margin = {"l": 8, "r": 8, "t": 12, "b": 8}
    legend = bottom_legend(-46 / plot)
    return frame(figure, "compare_memory", plot + below, barmode="stack", legend=legend, margin=margin)


def _segment(comparison: Comparison, segment: MemorySegment, size: int) -> go.Bar:
    style = palette().tiers[segment.tier]
    location = text(f"figures.location.{segment.location}")
    sealed = segment.tier in (Tier.QUANTIZED, Tier.OFFLOADED)
    name = text(
        f"figures.memory.{'band' if sealed else 'band_exact'}",
        tier=tier_name(segment.tier), part=text(f"figures.part.{segment.part}"), location=location,
    )  # fmt: skip
    kind = text(f"figures.kind.{'stored' if comparison.is_stored else 'measured'}")
    color = rgba(style.color, _ALPHA[segment.part])
    pattern = {
        "shape": "" if segment.location == "device" else "/",
        "fillmode": "overlay",  # else plotly leaves the bar's own colour out
        "fgcolor": "rgba(255,255,255,0.55)",
    }
    return go.Bar(
        orientation="h",
        y=letters(comparison),
        x=segment.used / size,
        name=name,
        customdata=[cell_words(int(used), "bytes") for used in segment.used],
        marker={"color": color, "line": {"color": style.color, "width": 1}, "pattern": pattern},
        hovertemplate=f"<b>%{{y}}</b><br>{name}<br>%{{customdata}}<extra>{kind}</extra>",
    )


# -- along the text ----------------------------------------------------------------------------------


def excess(comparison: Comparison, rolling: int = ROLLING_ROWS) -> NDArray[np.float64]:
    """``(C, R)``: what each configuration lost against full precision, nats, mean of the last ``rolling``
    rows. Rows of configurations without a score are not a number."""
    assert comparison.text is not None
    full = np.asarray(comparison.text.nll)
    lost = np.full((len(comparison.entries), len(full)), np.nan)
    for i, entry in enumerate(comparison.entries):
        if entry.score is not None:
            lost[i] = np.asarray(entry.score.nll) - full
    total = np.cumsum(lost, axis=-1)
    summed = total.copy()
    summed[:, rolling:] -= total[:, :-rolling]
    mean: NDArray[np.float64] = summed / np.minimum(np.arange(1, len(full) + 1), rolling)
    return mean


def nll_figure(comparison: Comparison) -> dict[str, Any]:
    """Loss against full precision along the text, and the worst tokens as points, as a payload."""
    if comparison.text is None:
        return to_payload(empty_figure("compare_nll", text("compare.figure.not_scored"), 200))
    return to_payload(draw_nll(comparison))


def draw_nll(comparison: Comparison) -> go.Figure:
    """A line a configuration over the position of the token that was predicted."""
    assert comparison.text is not None
    first = comparison.text.tokens - comparison.text.rows
    positions = np.arange(first, comparison.text.tokens)
    kind = text(f"figures.kind.{'stored' if comparison.is_stored else 'measured'}")
    figure = go.Figure()
    for i, (values, entry) in enumerate(zip(excess(comparison), comparison.entries, strict=True)):
        style = palette().run(i)
        name = f"{run_letter(i)}: {escape(entry.label)}"
        figure.add_scatter(
            x=positions,
            y=np.round(values, 4),
            name=name,
            mode="lines",
            line={"color": style.color, "dash": style.dash, "width": 2},
            hovertemplate=f"<b>{name}</b><br>"
            + text("compare.figure.hover_nll", position="%{x}", nats="%{y:+.3f}", rows=ROLLING_ROWS)
            + f"<extra>{kind}</extra>",
        )
    figure.update_xaxes(title_text=text("compare.figure.axis_position"), title_standoff=6)
    figure.update_yaxes(title_text=text("compare.figure.axis_excess", rows=ROLLING_ROWS), zeroline=True)
    return frame(figure, "compare_nll", _LINES_HEIGHT, legend=bottom_legend(-0.22))
