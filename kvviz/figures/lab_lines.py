"""NLL along a text: one line a configuration, and vertical lines where something happens.

Knows arrays and names; knows no experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvviz.catalogue import text
from kvviz.figures.theme import bottom_legend, escape, frame, palette

HEIGHT = 400
_MOST_POINTS = 1500  # of one line: more than a screen can show


class LineStyle(NamedTuple):
    """How one configuration looks in every figure of an experiment."""

    color: str
    dash: str
    width: float = 2.0


def nll_lines(
    name: str,
    positions: NDArray[Any],
    series: NDArray[Any],
    names: Sequence[str],
    styles: Sequence[LineStyle],
    y_title: str,
) -> go.Figure:
    """Lines of ``series (C, N)`` over ``positions (N,)``; the y axis ends where the worst line does."""
    step = max(1, -(-len(positions) // _MOST_POINTS))
    figure = go.Figure()
    for values, label, style in zip(series, names, styles, strict=True):
        figure.add_scatter(
            x=positions[::step],
            y=np.round(values[::step].astype(np.float64), 4),
            name=escape(label),
            mode="lines",
            line={"color": style.color, "dash": style.dash, "width": style.width},
            hovertemplate=f"<b>{escape(label)}</b><br>"
            + text("lab.lines.hover", row="%{x}", nll="%{y:.3f}")
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )
    figure.update_xaxes(title_text=text("lab.lines.axis_row"), title_standoff=6)
    figure.update_yaxes(title_text=y_title, rangemode="tozero")
    margin = {"l": 8, "r": 8, "t": 30, "b": 8}
    return frame(figure, name, HEIGHT, legend=bottom_legend(-0.2), margin=margin)


def mark_row(figure: go.Figure, row: int, words: str, *, dash: str = "dot") -> None:
    """A vertical line at ``row`` with its words above the plot."""
    figure.add_vline(x=row, line={"color": palette().reference, "dash": dash, "width": 2})
    figure.add_annotation(
        text=escape(words), x=row, y=1.0, yref="paper", yanchor="bottom", xanchor="left", showarrow=False,
        font={"size": 12},
    )  # fmt: skip
