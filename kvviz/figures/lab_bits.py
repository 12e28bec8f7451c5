"""Bits given to each layer, and the measured sensitivity they were given by.

Knows the arrays that ``kvviz.lab.bits`` documents; measures nothing.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_drawing import MARGIN, layer_axis, series_color
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import bottom_legend, frame, palette, to_payload

_HEIGHT = 380


def panels(result: LabResult) -> list[LabPanel]:
    """What was given, and why."""
    return [
        LabPanel("given", to_payload(draw_given(result))),
        LabPanel("sensitivity", to_payload(draw_sensitivity(result))),
    ]


def draw_given(result: LabResult) -> go.Figure:
    """Bits by layer, the budget as a line."""
    bits = result.arrays["given_bits"]
    hover = f"{text('figures.hover.layer', layer='%{x}')}: {text('lab.bits.figure.hover_bits', n='%{y}')}"
    figure = go.Figure(
        go.Bar(
            x=np.arange(len(bits)), y=bits, marker={"color": series_color(0)},
            hovertemplate=f"{hover}<extra>{text('figures.kind.computed')}</extra>",
        )
    )  # fmt: skip
    figure.add_hline(y=result.marks["budget_bits"], line={"color": palette().reference, "dash": "dash"})
    layer_axis(figure, len(bits))
    figure.update_yaxes(title_text=text("lab.bits.figure.bits"), range=[0, 8.5], tickvals=[2, 3, 4, 8])
    return frame(figure, "lab_bits_given", _HEIGHT, showlegend=False, margin=MARGIN)


def draw_sensitivity(result: LabResult) -> go.Figure:
    """KL by layer for every width that was tried, on a logarithm."""
    figure = go.Figure()
    for place, (width, losses) in enumerate(zip(result.marks["widths"], result.arrays["kl"], strict=True)):
        name = text("lab.bits.figure.hover_bits", n=width)
        figure.add_scatter(
            x=np.arange(len(losses)), y=np.where(losses > 0, losses, np.nan), name=name,
            mode="lines+markers", marker={"size": 5}, line={"color": series_color(place), "width": 2},
            hovertemplate=f"<b>{name}</b><br>{text('figures.hover.layer', layer='%{x}')}: KL %{{y:.3g}}"
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )  # fmt: skip
    layer_axis(figure, result.arrays["kl"].shape[1])
    figure.update_yaxes(title_text=text("lab.bits.figure.kl"), type="log", exponentformat="power", dtick=1)
    return frame(figure, "lab_bits_sensitivity", _HEIGHT, legend=bottom_legend(-0.22), margin=MARGIN)
