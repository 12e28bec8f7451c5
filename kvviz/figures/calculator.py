"""What an answer of the calculator looks like: a GPU filled up, and the cache over the context.

Knows answers and colours; computes no bytes itself but their sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import plotly.graph_objects as go

from kvviz.calculator import Answer, Question, peak_bytes
from kvviz.catalogue import text
from kvviz.config import CacheConfig
from kvviz.events import Tier
from kvviz.figures.memory import PARTS
from kvviz.figures.theme import bottom_legend, escape, frame, palette, rgba, tier_name, to_payload
from kvviz.units import format_count, format_gib

GIB = 1 << 30
FIT_HEIGHT, CONTEXT_HEIGHT = 330, 380
_POINTS = 80
_GREYS = {"weights": 0.85, "reserve": 0.3, "padding": 0.5, "growth": 0.5, "full": 0.6, "left": 0.0}
_ALPHA = {"exact": 0.9, "codes": 0.9, "metadata": 0.45, "outliers": 0.65}
_PATTERN = {"reserve": "\\", "padding": "x", "growth": ".", "full": "", "weights": "", "left": ""}


@dataclass(frozen=True, slots=True)
class Segment:
    """Bytes of one kind in a row ("cache", "full" or "host"); ``tier`` is empty for what is no cache."""

    row: str
    part: str
    n_bytes: int
    tier: str = ""


@dataclass(frozen=True, slots=True)
class ContextLine:
    """Bytes on the GPU of all users over tokens of context."""

    name: str
    tokens: tuple[int, ...]
    n_bytes: tuple[int, ...]


def segments(found: Answer) -> list[Segment]:
    """Rows fill up to the GPU's bytes when the answer fits; empty segments are left out."""
    question = found.question
    fixed = [("weights", found.weights_bytes), ("reserve", question.reserve_bytes)]
    made = [Segment(row, part, n) for row in ("cache", "full") for part, n in fixed]
    for locations, row in ((("device",), "cache"), (("host", "disk"), "host")):
        for tier in Tier:
            stored = [found.kv.used.get(location, {}).get(tier.value, {}) for location in locations]
            for part, names in PARTS.items():
                n_bytes = question.users * sum(here.get(name, 0) for here in stored for name in names)
                made.append(Segment(row, part, n_bytes, tier.value))
    growth = found.peak_bytes - found.kv.bytes_on("device")
    made.append(Segment("cache", "padding", question.users * found.kv.padding_bytes))
    made.append(Segment("cache", "growth", question.users * growth))
    full = question.users * found.full_bytes
    made.append(Segment("full", "full", full))
    made.append(Segment("cache", "left", max(0, found.left_bytes)))
    made.append(Segment("full", "left", max(0, found.room_bytes - full)))
    return [segment for segment in made if segment.n_bytes]


def fit_figure(found: Answer) -> dict[str, Any]:
    """The GPU filled up by this cache and by a 16-bit one; a JSON-ready payload."""
    figure = go.Figure()
    rows = ["cache", "full", *(["host"] if found.host_bytes else [])]
    shown: set[str] = set()
    for segment in segments(found):
        trace = _bar(segment)
        trace.showlegend = trace.legendgroup not in shown and segment.part != "left"
        shown.add(trace.legendgroup)
        figure.add_trace(trace)
    gpu = found.question.gpu_bytes
    figure.add_vline(x=gpu / GIB, line={"color": palette().reference, "dash": "dash", "width": 2.5})
    figure.add_annotation(
        text=text("calc.figure.fit.limit", gib=format_gib(gpu)), x=gpu / GIB, y=1, yref="paper",
        yanchor="bottom", xanchor="right", showarrow=False,
    )  # fmt: skip
    figure.update_xaxes(title_text=text("calc.figure.fit.axis"), rangemode="tozero", title_standoff=4)
    names = [text(f"calc.row.{row}") for row in rows]
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], showgrid=False)
    margin = {"l": 8, "r": 8, "t": 26, "b": 8}
    legend = bottom_legend(-0.26)
    return to_payload(
        frame(figure, "calc-fit", FIT_HEIGHT, barmode="stack", bargap=0.35, legend=legend, margin=margin)
    )


def _bar(segment: Segment) -> go.Bar:
    part = text(f"calc.segment.{segment.part}")
    if segment.tier:
        name = text("calc.figure.fit.band", tier=tier_name(segment.tier), part=part)
        style = palette().tiers[segment.tier]
        color, pattern = rgba(style.color, _ALPHA[segment.part]), "/" if segment.row == "host" else ""
    else:
        name, pattern = part, _PATTERN[segment.part]
        color = rgba(palette().reference, _GREYS[segment.part])
    hover = text(
        "calc.figure.fit.hover", gib=format_gib(segment.n_bytes), bytes=format_count(segment.n_bytes)
    )
    return go.Bar(
        x=[segment.n_bytes / GIB],
        y=[text(f"calc.row.{segment.row}")],
        orientation="h",
        name=name,
        legendgroup=f"{segment.tier}.{segment.part}.{segment.row == 'host'}",
        marker={
            "color": color,
            "line": {"width": 1, "color": palette().reference},
            "pattern": {"shape": pattern, "solidity": 0.25},
        },
        hovertemplate=f"{name}<br>{hover}<extra>{text('figures.kind.computed')}</extra>",
    )


def context_lines(found: Answer, named: Mapping[str, CacheConfig]) -> list[ContextLine]:
    """The asked cache first, then ``named`` ones, from one token to where most have met the room."""
    question = found.question
    full = found.full_largest_context
    last = max(question.context_tokens, 4 * full if full else 4 * question.context_tokens)
    tokens = tuple(sorted({max(1, round(last * i / _POINTS)) for i in range(_POINTS + 1)}))
    asked = {text("calc.figure.context.this"): question.cache} | dict(named)
    return [
        ContextLine(name, tokens, _over(replace(question, cache=cache), tokens))
        for name, cache in asked.items()
    ]


def _over(question: Question, tokens: Sequence[int]) -> tuple[int, ...]:
    return tuple(question.users * peak_bytes(question, count) for count in tokens)


def context_figure(found: Answer, named: Mapping[str, CacheConfig]) -> dict[str, Any]:
    """Lines of :func:`context_lines`, the room on the GPU, the context the model was made for."""
    figure = go.Figure()
    drawn = context_lines(found, named)
    for i, line in reversed(list(enumerate(drawn))):
        figure.add_trace(_line(line, i))
    last = drawn[0].tokens[-1]
    highest: float = max(max(line.n_bytes) for line in drawn)
    if found.room_bytes > 0:
        figure.add_hline(
            y=found.room_bytes / GIB,
            line={"color": palette().reference, "dash": "dash", "width": 2.5},
            annotation_text=text("calc.figure.context.room", gib=format_gib(found.room_bytes)),
            annotation_position="top left",
        )
        highest = min(highest, 1.6 * found.room_bytes)
    trained = found.question.shape.context_tokens
    if trained < last:
        figure.add_vline(x=trained, line={"color": palette().reference, "dash": "dot", "width": 1.5})
        figure.add_annotation(
            text=text("calc.figure.context.trained", n=format_count(trained)), x=trained, y=1, yref="paper",
            yanchor="bottom", xanchor="left", showarrow=False, font={"size": 12},
        )  # fmt: skip
    figure.update_xaxes(
        title_text=text("calc.figure.context.axis_x"), range=[0, last], title_standoff=4, nticks=6
    )
    figure.update_yaxes(title_text=text("calc.figure.context.axis_y"), range=[0, 1.05 * highest / GIB])
    margin = {"l": 8, "r": 8, "t": 30, "b": 8}
    legend = bottom_legend(-0.22) | {"traceorder": "reversed"}
    return to_payload(frame(figure, "calc-context", CONTEXT_HEIGHT, legend=legend, margin=margin))


def _line(line: ContextLine, index: int) -> go.Scatter:
    style = palette().run(index)
    name = escape(line.name)
    hover = [
        text("calc.figure.context.hover", n=format_count(n), gib=format_gib(size))
        for n, size in zip(line.tokens, line.n_bytes, strict=True)
    ]
    return go.Scatter(
        x=line.tokens,
        y=[size / GIB for size in line.n_bytes],
        name=name,
        mode="lines",
        line={
            "color": style.color if index < len(palette().runs) else palette().reference,
            "dash": style.dash,
            "width": 4 if index == 0 else 2,
        },
        text=hover,
        hovertemplate=f"<b>{name}</b><br>%{{text}}<extra>{text('figures.kind.computed')}</extra>",
    )
