"""The maps of two configurations, their difference and one row, drawn.

Knows :class:`kvviz.figures.compare_maps.PairMaps`; reduces and compares nothing itself.
"""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go

from kvviz.catalogue import text
from kvviz.figures.attention_map import HEIGHT, LOG_DECADES, AttentionMap, Scale, compact, draw_attention
from kvviz.figures.compare_maps import PairMaps, Side, largest, row_weights
from kvviz.figures.theme import (
    CLEAR,
    bottom_legend,
    diverging_scale,
    empty_figure,
    escape,
    frame,
    palette,
    to_payload,
)

ROW_HEIGHT = 340
_NO_WEIGHT = "rgba(128,128,128,0.25)"
_FLOOR = 0.01  # percent: what a map's rounding can show
_TICKS = {-4: "−100", -2: "−1", 0: "0", 2: "1", 4: "100"}


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
    figure = draw_attention(data, scale, shown.kind)
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


def draw_difference(pair: PairMaps, row: int, scale: Scale) -> go.Figure:
    """The heatmap without its values, which join in the payload."""
    limit = 100.0 if scale == "log" else _rounded_up(max(largest(pair), _FLOOR))
    letters = {"first": pair.first.letter, "second": pair.second.letter}
    hover = text("compare.map.hover_difference", query="%{y}", key="%{x}", difference="%{z:+.2f}", **letters)
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
        _outline_evicted(figure, side, CLEAR)  # what lies there keeps its colour on the scale
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


def _outline_evicted(figure: go.Figure, side: Side, fill: str = _NO_WEIGHT) -> None:
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
        line={"color": style.color, "width": 2, "dash": "dot"}, fillcolor=fill,
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


def draw_row(pair: PairMaps, row: int, scale: Scale) -> go.Figure:
    """Two lines over the keys; a gap is an evicted key, and on the log scale a weight that rounds to 0 lies
    on the floor."""
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
            + f"<extra>{text(f'figures.kind.{side.kind}')}</extra>",
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
