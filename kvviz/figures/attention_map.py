"""The token x token attention map of one layer and head, from the record's max-reduced cells.

Knows cells, positions and tiers; does not recompute attention. Row i is the query of token i: the newest
generated token has no row yet, so labels and rows always agree by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvviz.catalogue import text
from kvviz.events import Span, TokenLabel
from kvviz.figures.theme import (
    CLEAR,
    empty_figure,
    frame,
    linear_scale,
    log_scale,
    palette,
    record_state,
    tier_name,
    to_payload,
    token_label,
)
from kvviz.record import RunRecord

Scale = Literal["linear", "log"]
HEIGHT = 520
LOG_DECADES = 4
MAX_CELLS = 256  # of this figure: a payload stays under 200 KB
_FIRST_JOINED = 16
_NAMED_SHARE = 0.2
_EDGE_COLOR = "#ffffff"  # lies on the map only, whose colours are the same on every page
_TICKS_LOG = {-4: "0.01", -3: "0.1", -2: "1", -1: "10", 0: "100"}


@dataclass(frozen=True, slots=True)
class Boundary:
    """Tokens ``[start, stop)`` of one tier in cell coordinates of the newest row (cell c covers c..c + 1)."""

    tier: str
    start: float
    stop: float


@dataclass(frozen=True, slots=True)
class AttentionMap:
    """Probabilities in percent, rounded to 0.01 %.

    ``rows[r]`` is ``(r + 1,)`` float64, the cells that query cell ``r`` may see, or ``(0,)`` for a row that
    is not there yet. ``keys`` name all cells by position (or range) and token text.
    """

    layer: int
    head: int
    rows: tuple[NDArray[np.float64], ...]
    keys: tuple[str, ...]
    tokens_per_cell: int
    boundaries: tuple[Boundary, ...]


def attention_data(record: RunRecord, layer: int, head: int) -> AttentionMap | None:
    """The map of one layer and head; None when there is none (or the layer or head does not exist)."""
    if record.attention is None or record.grid is None:
        return None
    n_layers, n_heads = record.attention.shape[:2]
    if not (0 <= layer < n_layers and 0 <= head < n_heads):
        return None
    edges, values = fitted(record.grid.edges, record.attention[layer, head])
    percent = np.round(values.astype(np.float64) * 100, 2)
    # A row's weights sum to 1, so a row that is there has a maximum above 0.
    present = values.max(axis=1) > 0
    if not present.any():
        return None
    cells = len(percent) if record.is_live else int(np.flatnonzero(present)[-1]) + 1
    tokens_per_cell = max(record.grid.tokens_per_cell, int(np.diff(edges).max()))
    edges = edges[: cells + 1]
    return AttentionMap(
        layer=layer,
        head=head,
        rows=tuple(percent[r, : r + 1] if present[r] else np.zeros(0) for r in range(cells)),
        keys=tuple(cell_name(edges, cell, record.labels) for cell in range(cells)),
        tokens_per_cell=tokens_per_cell,
        boundaries=boundaries_of(edges, record.spans[-1] if record.spans else ()),
    )


def fitted(
    edges: NDArray[np.int64], values: NDArray[np.float16]
) -> tuple[NDArray[np.int64], NDArray[np.float16]]:
    """At most :data:`MAX_CELLS` cells: neighbours after the sinks join in pairs and keep their maximum."""
    too_many = len(edges) - 1 - MAX_CELLS
    if too_many <= 0:
        return edges, values
    shared = np.flatnonzero(np.diff(edges) > 1)
    first = int(shared[0]) if len(shared) else _FIRST_JOINED
    kept = np.delete(np.arange(len(edges)), first + 1 + 2 * np.arange(too_many))
    joined = np.maximum.reduceat(np.maximum.reduceat(values, kept[:-1], axis=0), kept[:-1], axis=1)
    return edges[kept], joined


def cell_name(edges: NDArray[np.int64], cell: int, labels: Sequence[TokenLabel]) -> str:
    """``12 ␠world``, ``12–15 ␠world…`` for several tokens, the position alone when it is not there yet."""
    first, last = int(edges[cell]), int(edges[cell + 1]) - 1
    position = str(first) if first == last else f"{first}–{last}"
    if first >= len(labels):
        return position
    if first == last:
        return f"{position} {token_label(labels[first].display)}"
    return f"{position} {token_label(labels[first].display, 6)}…"


def boundaries_of(edges: NDArray[np.int64], spans: Sequence[Span]) -> tuple[Boundary, ...]:
    """Where the tiers of ``spans`` begin and end, in cells."""
    cells = np.arange(len(edges))
    places = (
        Boundary(
            span.tier.value,
            float(np.interp(span.start, edges, cells)),
            float(np.interp(span.stop, edges, cells)),
        )
        for span in sorted(spans, key=lambda span: span.start)
    )
    return tuple(place for place in places if place.stop > place.start)


def attention_figure(record: RunRecord, layer: int, head: int, scale: Scale = "linear") -> dict[str, Any]:
    """The token x token heatmap as a JSON-ready payload: rows are queries, columns keys, by position."""
    data = attention_data(record, layer, head)
    if data is None:
        return to_payload(empty_figure("attention", text(_why_none(record)), HEIGHT))
    payload = to_payload(draw_attention(data, scale, record.kind))
    payload["data"][0]["z"] = [compact(row) for row in data.rows]
    return payload


def _why_none(record: RunRecord) -> str:
    """Catalogue key of the sentence for a record without this map."""
    if record.is_stored and record.attention is None:
        return "atlas.stored_maps"
    return "figures.attention.none" if record.tier_mass else record_state([record])


def draw_attention(data: AttentionMap, scale: Scale, kind: str = "measured") -> go.Figure:
    """The heatmap without its values: plotly would check each, so they join in the payload.

    They are ragged rows, so the cells that a query may not see do not exist: no colour, no hover, no bytes.
    Both scales carry the same values: only the colours are placed differently.
    """
    hover = text("figures.attention.hover", query="%{y}", key="%{x}", share="%{z:.2f} %")
    figure = go.Figure(
        go.Heatmap(
            x=data.keys,
            y=data.keys,
            zmin=0,
            zmax=100,
            colorscale=linear_scale() if scale == "linear" else log_scale(LOG_DECADES),
            hoverongaps=False,
            hovertemplate=hover + f"<extra>{text(f'figures.kind.{kind}')}</extra>",
            showscale=scale == "linear",
            colorbar=_colorbar(data) | {"nticks": 5},
        )
    )
    if scale == "log":
        figure.add_trace(_log_colorbar(data))
    cells = len(data.keys)
    _draw_boundaries(figure, data.boundaries, cells)
    common = {"type": "category", "showgrid": False, "zeroline": False, "tickfont": {"size": 11}}
    figure.update_xaxes(
        title_text=text("figures.axis.key"), range=[-0.5, cells - 0.5], tickangle=-90, **common
    )
    figure.update_yaxes(title_text=text("figures.axis.query"), range=[cells - 0.5, -0.5], **common)
    figure.add_annotation(
        text="<br>".join(attention_note(data)), xref="paper", yref="paper", x=1, y=0.98, xanchor="right",
        yanchor="top", align="right", showarrow=False,
    )  # fmt: skip
    return frame(figure, "attention", HEIGHT)


def attention_note(data: AttentionMap) -> list[str]:
    """Which map this is and, when a cell is more than one token, how many and what it shows: short lines."""
    lines = [text("figures.attention.note", layer=data.layer, head=data.head)]
    if data.tokens_per_cell > 1:
        lines += [text("figures.attention.cells", k=data.tokens_per_cell), text("figures.attention.maximum")]
    return lines


def _draw_boundaries(figure: go.Figure, boundaries: Sequence[Boundary], cells: int) -> None:
    """A bar in the tier's colour above its keys, its glyph (and name where it fits), a line at each edge."""
    stop = cells - 0.5
    for place in boundaries:
        style = palette().tiers[place.tier]
        figure.add_shape(
            type="rect", xref="x", yref="paper", x0=place.start - 0.5, x1=place.stop - 0.5, y0=1.005, y1=1.03,
            fillcolor=style.color if style.filled else CLEAR, line={"width": 1, "color": style.color},
            name=tier_name(place.tier),
        )  # fmt: skip
        if place.start > 0:
            figure.add_shape(
                type="line", xref="x", yref="y", x0=place.start - 0.5, x1=place.start - 0.5,
                y0=place.start - 0.5, y1=stop,
                line={"width": 1.5, "color": _EDGE_COLOR, "dash": "dot"}, name=tier_name(place.tier),
            )  # fmt: skip
        words = [style.glyph]
        if place.stop - place.start >= _NAMED_SHARE * boundaries[-1].stop:
            words.append(tier_name(place.tier))
        figure.add_annotation(
            text=" ".join(words), xref="x", x=(place.start + place.stop - 1) / 2, yref="paper", y=1.03,
            yanchor="bottom", showarrow=False, font={"size": 12},
        )  # fmt: skip


def compact(row: NDArray[np.float64]) -> list[float | int]:
    """JSON numbers as short as their two decimals allow."""
    return [int(x) if x == int(x) else x for x in row.tolist()]


def _colorbar(data: AttentionMap) -> dict[str, Any]:
    """Lies in the upper triangle, where no cell is: the map keeps the whole width."""
    return {
        "orientation": "h",
        "thickness": 12,
        "len": 0.52,
        "x": 1,
        "xanchor": "right",
        "y": 0.98 - 0.055 * len(attention_note(data)),
        "yanchor": "top",
        "outlinewidth": 0,
        "tickangle": 0,
        "tickfont": {"size": 11},
        "title": {"text": text("figures.attention.scale"), "side": "top"},
    }


def _log_colorbar(data: AttentionMap) -> go.Scatter:
    """A trace without points whose colour bar shows the logarithmic steps."""
    bar = _colorbar(data) | {"tickvals": list(_TICKS_LOG), "ticktext": list(_TICKS_LOG.values())}
    marker = {
        "color": [-LOG_DECADES, 0], "cmin": -LOG_DECADES, "cmax": 0, "colorscale": linear_scale(),
        "showscale": True, "colorbar": bar, "size": 0,
    }  # fmt: skip
    return go.Scatter(
        x=[None, None], y=[None, None], mode="markers", marker=marker, hoverinfo="skip", showlegend=False
    )
