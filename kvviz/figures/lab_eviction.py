"""The collapse and the repair: NLL along the text, and the perplexity of every configuration.

Knows the arrays that ``kvviz.lab.eviction`` documents; measures nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_lines import LineStyle, mark_row, nll_lines
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import escape, frame, palette, to_payload

_BARS_HEIGHT = 300


def panels(result: LabResult) -> list[LabPanel]:
    """Rolling NLL by position, what it lies above full precision, then perplexity."""
    return [
        LabPanel("rolling", to_payload(draw_rolling(result))),
        LabPanel("excess", to_payload(draw_excess(result))),
        LabPanel("ppl", to_payload(draw_perplexity(result))),
    ]


def draw_rolling(result: LabResult) -> go.Figure:
    """A line a configuration; the vertical line is where the first token leaves the window."""
    marks, series = result.marks, result.arrays["rolling_nll"]
    rows = np.arange(series.shape[1])
    y_title = text("lab.eviction.figure.axis_nll", rolling=marks["rolling"])
    styles = [_style(sinks) for sinks in marks["sinks"]]
    figure = nll_lines("lab_eviction_rolling", rows, series, marks["configurations"], styles, y_title)
    return _marked(figure, result)


def draw_excess(result: LabResult) -> go.Figure:
    """The same lines less full precision's: easy and hard passages of the text cancel out."""
    marks, series = result.marks, result.arrays["rolling_nll"]
    styles = [_style(sinks) for sinks in marks["sinks"][1:]]
    names = marks["configurations"][1:]
    y_title = text("lab.eviction.figure.axis_excess")
    rows = np.arange(series.shape[1])
    figure = nll_lines("lab_eviction_excess", rows, series[1:] - series[0], names, styles, y_title)
    return _marked(figure, result)


def _marked(figure: go.Figure, result: LabResult) -> go.Figure:
    leaves_at = result.marks["leaves_at"]
    if leaves_at < result.arrays["rolling_nll"].shape[1]:
        mark_row(figure, leaves_at, text("lab.eviction.figure.leaves", row=leaves_at))
    return figure


def draw_perplexity(result: LabResult) -> go.Figure:
    """A bar a configuration, its number at its end."""
    main = result.tables["configurations"]
    values: list[Any] = main.column("ppl")
    styles = [_style(sinks) for sinks in result.marks["sinks"]]
    words = text(
        "lab.eviction.figure.hover_ppl",
        ppl="%{y:.4f}", kl="%{customdata[0]:.5f}", top1="%{customdata[1]:.4f}",
    )  # fmt: skip
    figure = go.Figure(
        go.Bar(
            x=[escape(str(name)) for name in main.column("configuration")],
            y=values,
            text=[f"{value:.2f}" for value in values],
            textposition="outside",
            cliponaxis=False,
            customdata=list(zip(main.column("kl"), main.column("top1"), strict=True)),
            marker={"color": [style.color for style in styles]},
            hovertemplate=f"<b>%{{x}}</b><br>{words}<extra>{text('figures.kind.measured')}</extra>",
        )
    )
    figure.update_yaxes(
        title_text=text("lab.eviction.figure.axis_ppl", skip=result.marks["skip"]), rangemode="tozero"
    )
    return frame(figure, "lab_eviction_ppl", _BARS_HEIGHT, showlegend=False)


def _style(sinks: int | None) -> LineStyle:
    """Full precision as a reference, the window alone as the one that stands out, sinks by their number."""
    colors = palette()
    if sinks is None:
        return LineStyle(colors.reference, "solid", 4)
    if sinks == 0:
        return LineStyle(colors.run(1).color, "solid", 3)
    shade, dash = {1: (1, "dot"), 2: (3, "dashdot"), 4: (5, "dash"), 8: (7, "longdash")}[sinks]
    return LineStyle(colors.sequential[shade], dash)
