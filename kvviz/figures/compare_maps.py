"""Attention of two configurations at the same rows: both maps, their difference, and one row in full.

Only rows whose tokens are the same in both runs are compared, up to the row that chose the first token that
differs; rows, columns and labels are the same in all figures. What a configuration has evicted is told apart from
what weighs little: such a cell has no weight by rule. Recomputes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvviz.catalogue import text
from kvviz.config import CacheConfig, Middle
from kvviz.events import Span
from kvviz.figures.attention_map import (
    HEIGHT,
    LOG_DECADES,
    AttentionMap,
    Boundary,
    Scale,
    boundaries_of,
    cell_name,
    compact,
    draw_attention,
    fitted,
)
from kvviz.figures.theme import (
    bottom_legend,
    diverging_scale,
    empty_figure,
    escape,
    frame,
    palette,
    run_letter,
    to_payload,
)
from kvviz.record import RunRecord

ROW_HEIGHT = 340
_FLOOR = 0.01  # percent: what a map's rounding can show
_TICKS = {-4: "−100", -3: "−10", -2: "−1", -1: "−0.1", 0: "0", 1: "0.1", 2: "1", 3: "10", 4: "100"}


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two. ``weights[r]`` are percent, ``(r + 1,)`` float64; ``evicted[r]`` is the range
    ``[start, stop)`` of cells that no row of cell ``r`` may see any more, empty where nothing is evicted."""

    index: int
    weights: tuple[NDArray[np.float64], ...]
    evicted: tuple[tuple[int, int], ...]
    boundaries: tuple[Boundary, ...]

    @property
    def letter(self) -> str:
        """``A`` for the first configuration of the comparison."""
        return run_letter(self.index)


@dataclass(frozen=True, slots=True)
class PairMaps:
    """Two configurations over the ``rows`` that they share, in cells of the same ``edges``.

    ``parted`` is true when the token after the last shared row differs. ``difference[r]`` is first less second
    in percentage points.
    """

    layer: int
    head: int
    rows: int
    parted: bool
    edges: NDArray[np.int64]
    keys: tuple[str, ...]
    tokens_per_cell: int
    first: Side
    second: Side
    difference: tuple[NDArray[np.float64], ...]

    def cell_of(self, row: int) -> int:
        """The cell of a row, the last one for rows past it."""
        return min(len(self.keys) - 1, int(np.searchsorted(self.edges, max(0, row), side="right")) - 1)


def shared_rows(a: RunRecord, b: RunRecord) -> int:
    """Query rows ``[0, n)`` that both have read and whose tokens are the same in both."""
    ids_a, ids_b = a.token_ids, b.token_ids
    same = next((i for i, (x, y) in enumerate(zip(ids_a, ids_b, strict=False)) if x != y), None)
    least = min(a.rows, b.rows)
    return least if same is None else min(least, same)


def pair_maps(records: Sequence[RunRecord], pair: tuple[int, int], layer: int, head: int) -> PairMaps | None:
    """The maps of two runs; None where there is nothing that both have."""
    a, b = (records[i] for i in pair)
    if a.attention is None or b.attention is None or a.grid is None or b.grid is None:
        return None
    shapes = (a.attention.shape[:2], b.attention.shape[:2])
    if shapes[0] != shapes[1] or not (0 <= layer < shapes[0][0] and 0 <= head < shapes[0][1]):
        return None
    rows = shared_rows(a, b)
    edges = np.intersect1d(a.grid.edges, b.grid.edges)
    edges = edges[edges <= rows]  # whole cells only: none shows rows that the texts do not share
    if len(edges) < 2:
        return None
    values = [_joined(record.grid.edges, record.attention[layer, head], edges) for record in (a, b)]  # type: ignore[union-attr,index]
    (kept, first), (_, second) = (fitted(edges, value) for value in values)
    sides = tuple(
        _side(index, record, kept, value, rows)
        for index, record, value in zip(pair, (a, b), (first, second), strict=True)
    )
    cells = len(kept) - 1
    labels = a.labels
    return PairMaps(
        layer=layer,
        head=head,
        rows=rows,
        parted=rows < min(len(a.token_ids), len(b.token_ids)) and a.token_ids[rows] != b.token_ids[rows],
        edges=kept,
        keys=tuple(cell_name(kept, cell, labels) for cell in range(cells)),
        tokens_per_cell=int(np.diff(kept).max()),
        first=sides[0],
        second=sides[1],
        difference=tuple(
            np.round(x - y, 2) for x, y in zip(sides[0].weights, sides[1].weights, strict=True)
        ),
    )


def _joined(
    edges: NDArray[np.int64], values: NDArray[np.float16], wanted: NDArray[np.int64]
) -> NDArray[np.float16]:
    """Maxima of a map's cells in the wider cells of ``wanted``, whose edges are among ``edges``."""
    starts = np.searchsorted(edges, wanted)
    part = values[: starts[-1], : starts[-1]]
    rows = np.maximum.reduceat(part, starts[:-1], axis=0)
    joined: NDArray[np.float16] = np.maximum.reduceat(rows, starts[:-1], axis=1)
    return joined


def _side(
    index: int, record: RunRecord, edges: NDArray[np.int64], values: NDArray[np.float16], rows: int
) -> Side:
    percent = np.round(values.astype(np.float64) * 100, 2)
    step = rows - len(record.prompt_ids)  # a step's spans are those after the row that chose its token
    spans: Sequence[Span] = record.spans[step] if 0 <= step < len(record.spans) else ()
    return Side(
        index=index,
        weights=tuple(percent[r, : r + 1] for r in range(len(edges) - 1)),
        evicted=_evicted(CacheConfig.from_dict(record.config["cache"]), edges),
        boundaries=boundaries_of(edges, spans),
    )


def _evicted(cache: CacheConfig, edges: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Cells wholly in ``[sink_size, i - window_size]`` for the first row ``i`` of each cell, and so for all."""
    ranges = []
    for row in edges[:-1].tolist():
        if cache.middle is not Middle.EVICT:
            ranges.append((0, 0))
            continue
        start = int(np.searchsorted(edges, cache.sink_size, side="left"))
        stop = int(np.searchsorted(edges, row - cache.window_size + 1, side="right")) - 1
        ranges.append((start, stop) if stop > start else (0, 0))
    return tuple(ranges)


# -- drawing -----------------------------------------------------------------------------------------


def map_figure(pair: PairMaps | None, side: int, row: int, scale: Scale, reason: str) -> dict[str, Any]:
    """The map of one of the two (``side`` 0 or 1), ``row`` marked, as a payload."""
    if pair is None:
        return to_payload(empty_figure("compare_map", reason, HEIGHT))
    shown = (pair.first, pair.second)[side]
    data = AttentionMap(
        layer=pair.layer,
        head=pair.head,
        rows=shown.weights,
        keys=pair.keys,
        tokens_per_cell=pair.tokens_per_cell,
        boundaries=shown.boundaries,
    )
    figure = draw_attention(data, scale)
    _outline_evicted(figure, shown)
    _mark_row(figure, pair.cell_of(row))
    payload = to_payload(figure)
    payload["data"][0]["z"] = [compact(weights) for weights in shown.weights]
    return payload


def difference_figure(pair: PairMaps | None, row: int, scale: Scale, reason: str) -> dict[str, Any]:
    """First less second, colours centred at 0, as a payload."""
    if pair is None:
        return to_payload(empty_figure("compare_difference", reason, HEIGHT))
    payload = to_payload(draw_difference(pair, row, scale))
    payload["data"][0]["z"] = [compact(values) for values in pair.difference]
    return payload


def largest(pair: PairMaps) -> float:
    """The largest difference either way, percentage points."""
    return max((float(np.abs(values).max()) for values in pair.difference if len(values)), default=0.0)


def draw_difference(pair: PairMaps, row: int, scale: Scale) -> go.Figure:
    """The heatmap without its values, which join in the payload."""
    limit = 100.0 if scale == "log" else _rounded_up(max(largest(pair), _FLOOR))
    letters = {"first": pair.first.letter, "second": pair.second.letter}
    hover = text(
        "compare.map.hover_difference", query="%{y}", key="%{x}", difference="%{z:+.2f}", **letters
    )
    figure = go.Figure(
        go.Heatmap(
            x=pair.keys,
            y=pair.keys,
            zmin=-limit,
            zmax=limit,
            colorscale=diverging_scale(LOG_DECADES if scale == "log" else None),
            hoverongaps=False,
            hovertemplate=hover + f"<extra>{text('figures.kind.computed')}</extra>",
            showscale=scale == "linear",
            colorbar=_bar(pair) | {"nticks": 5},
        )
    )
    if scale == "log":
        figure.add_trace(_log_bar(pair))
    for side in (pair.first, pair.second):
        _outline_evicted(figure, side)
    _mark_row(figure, pair.cell_of(row))
    cells = len(pair.keys)
    common = {"type": "category", "showgrid": False, "zeroline": False, "tickfont": {"size": 11}}
    figure.update_xaxes(
        title_text=text("figures.axis.key"), range=[-0.5, cells - 0.5], tickangle=-90, **common
    )
    figure.update_yaxes(title_text=text("figures.axis.query"), range=[cells - 0.5, -0.5], **common)
    figure.add_annotation(
        text="<br>".join(escape(line) for line in _note(pair)), xref="paper", yref="paper", x=1, y=0.98,
        xanchor="right", yanchor="top", align="right", showarrow=False,
    )  # fmt: skip
    return frame(figure, "compare_difference", HEIGHT)


def _note(pair: PairMaps) -> list[str]:
    lines = [text("figures.attention.note", layer=pair.layer, head=pair.head)]
    if pair.tokens_per_cell > 1:
        lines += [
            text("figures.attention.cells", k=pair.tokens_per_cell),
            text("compare.map.difference_of_maxima"),
        ]
    for side in (pair.first, pair.second):
        if any(stop > start for start, stop in side.evicted):
            lines.append(text("compare.map.evicted_note", letter=side.letter))
    return lines


def _bar(pair: PairMaps) -> dict[str, Any]:
    letters = {"first": pair.first.letter, "second": pair.second.letter}
    return {
        "orientation": "h", "thickness": 12, "len": 0.52, "x": 1, "xanchor": "right",
        "y": 0.98 - 0.055 * len(_note(pair)), "yanchor": "top", "outlinewidth": 0, "tickangle": 0,
        "tickfont": {"size": 11}, "title": {"text": text("compare.map.scale", **letters), "side": "top"},
    }  # fmt: skip


def _log_bar(pair: PairMaps) -> go.Scatter:
    """A trace without points whose colour bar shows the logarithmic steps either way."""
    wanted = [-LOG_DECADES, -LOG_DECADES // 2, 0, LOG_DECADES // 2, LOG_DECADES]
    bar = _bar(pair) | {"tickvals": wanted, "ticktext": [_TICKS[at] for at in wanted]}
    marker = {
        "color": [-LOG_DECADES, LOG_DECADES], "cmin": -LOG_DECADES, "cmax": LOG_DECADES,
        "colorscale": diverging_scale(), "showscale": True, "colorbar": bar, "size": 0,
    }  # fmt: skip
    return go.Scatter(
        x=[None, None], y=[None, None], mode="markers", marker=marker, hoverinfo="skip", showlegend=False
    )


def _rounded_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    size: float = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in (1, 2, 5, 10) if value <= step * size * (1 + 1e-9))


def _outline_evicted(figure: go.Figure, side: Side) -> None:
    """The edge of what ``side`` has evicted, in its colour; nothing where it evicts nothing."""
    cells = [(row, start, stop) for row, (start, stop) in enumerate(side.evicted) if stop > start]
    if not cells:
        return
    right = [f"L{stop - 0.5},{row - 0.5} L{stop - 0.5},{row + 0.5}" for row, _, stop in cells]
    top, start, _ = cells[0]
    path = f"M{start - 0.5},{top - 0.5} {' '.join(right)} L{start - 0.5},{cells[-1][0] + 0.5} Z"
    style = palette().run(side.index)
    figure.add_shape(
        type="path", path=path, xref="x", yref="y", name=text("compare.map.evicted", letter=side.letter),
        line={"color": style.color, "width": 2, "dash": "dot"}, fillcolor="rgba(128,128,128,0.25)",
    )  # fmt: skip


def _mark_row(figure: go.Figure, cell: int) -> None:
    """A frame around the cells of one row."""
    for color, width in (("#ffffff", 4), ("#111111", 2)):
        figure.add_shape(
            type="rect", xref="x", yref="y", x0=-0.5, x1=cell + 0.5, y0=cell - 0.5, y1=cell + 0.5,
            line={"color": color, "width": width}, name=text("compare.map.row"),
        )  # fmt: skip


def row_figure(pair: PairMaps | None, row: int, scale: Scale, reason: str) -> dict[str, Any]:
    """What one row looks at under both, key by key, as a payload."""
    if pair is None:
        return to_payload(empty_figure("compare_row", reason, ROW_HEIGHT))
    return to_payload(draw_row(pair, row, scale))


def row_weights(pair: PairMaps, row: int) -> tuple[list[float | None], list[float | None]]:
    """Percent of both, one for each key cell up to the row's; None where the key is evicted."""
    cell = pair.cell_of(row)
    found = []
    for side in (pair.first, pair.second):
        start, stop = side.evicted[cell]
        found.append(
            [None if start <= key < stop else float(x) for key, x in enumerate(side.weights[cell])]
        )
    return found[0], found[1]


def draw_row(pair: PairMaps, row: int, scale: Scale) -> go.Figure:
    """Two lines over the keys; a gap is an evicted key, and on the log scale a weight that rounds to 0 lies on
    the floor."""
    figure = go.Figure()
    cell = pair.cell_of(row)
    for side, weights in zip((pair.first, pair.second), row_weights(pair, row), strict=True):
        style = palette().run(side.index)
        shown = [w if w is None or scale == "linear" else max(w, _FLOOR) for w in weights]
        figure.add_scatter(
            x=pair.keys[: cell + 1],
            y=shown,
            customdata=weights,
            name=side.letter,
            mode="lines+markers",
            connectgaps=False,
            line={"color": style.color, "dash": style.dash, "width": 2, "shape": "hvh"},
            marker={"symbol": style.symbol, "size": 5, "color": style.color},
            hovertemplate=f"<b>{side.letter}</b><br>"
            + text("figures.attention.hover", query=escape(pair.keys[cell]), key="%{x}",
                   share="%{customdata:.2f} %")
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )  # fmt: skip
    figure.update_xaxes(
        title_text=text("figures.axis.key"), type="category", tickangle=-90, tickfont={"size": 11},
        range=[-0.5, cell + 0.5], showgrid=False,
    )  # fmt: skip
    axis: dict[str, Any] = {"title_text": text("figures.attention.scale")}
    if scale == "log":
        axis |= {"type": "log", "range": [math.log10(_FLOOR), 2], "dtick": 1}
    else:
        axis |= {"rangemode": "tozero"}
    figure.update_yaxes(**axis)
    legend = bottom_legend(1.12) | {"yanchor": "bottom", "y": 1.0}
    return frame(figure, "compare_row", ROW_HEIGHT, legend=legend)
