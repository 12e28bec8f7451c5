"""Which caches still know the fact: the probability of the right number, and the attention that reached it.

Knows the arrays that ``kvviz.lab.recall`` documents; measures nothing.
"""

from __future__ import annotations

import plotly.graph_objects as go

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import bottom_legend, escape, frame, palette, to_payload

_HEIGHT = 320


def panels(result: LabResult) -> list[LabPanel]:
    """Probability by depth, then attention on the fact."""
    return [
        LabPanel("probability", to_payload(draw_probability(result))),
        LabPanel("mass", to_payload(draw_mass(result))),
    ]


def draw_probability(result: LabResult) -> go.Figure:
    """Bars in groups by depth, one a cache."""
    figure = _bars(result, "probability", [".1%", "%{y:.2%}"])
    figure.update_yaxes(
        title_text=text("lab.recall.figure.axis_probability"), range=[0, 1.1], tickformat=".0%"
    )
    return frame(figure, "lab_recall_probability", _HEIGHT, legend=bottom_legend(-0.25))


def draw_mass(result: LabResult) -> go.Figure:
    """The mean over all heads; the largest head is told under the pointer."""
    words = text("lab.recall.figure.hover_mass", mean="%{y:.3%}", peak="%{customdata:.1%}")
    figure = _bars(result, "fact_mass", [".2%", words])
    figure.update_yaxes(title_text=text("lab.recall.figure.axis_mass"), rangemode="tozero", tickformat="~%")
    return frame(figure, "lab_recall_mass", _HEIGHT, legend=bottom_legend(-0.25))


def _bars(result: LabResult, array: str, formats: list[str]) -> go.Figure:
    number, hover = formats
    depths = [text("lab.recall.figure.depth", depth=depth) for depth in result.marks["depths"]]
    figure = go.Figure()
    peaks = result.arrays["fact_peak"]
    for i, (name, values) in enumerate(zip(result.marks["caches"], result.arrays[array], strict=True)):
        figure.add_bar(
            x=depths,
            y=values,
            customdata=peaks[i],
            name=escape(name),
            text=[f"{value:{number}}" for value in values],
            textposition="outside",
            cliponaxis=False,
            marker={"color": palette().run(i).color},
            hovertemplate=f"<b>{escape(name)}</b><br>{hover}<extra>{text('figures.kind.measured')}</extra>",
        )
    figure.update_xaxes(title_text=text("lab.recall.figure.axis_depth"), type="category", title_standoff=6)
    figure.update_layout(barmode="group", showlegend=True)
    return figure
