"""One layer quantized at a time: what the words lose, and how well the layer was stored.

Knows the arrays that ``kvviz.lab.first_layer`` documents; measures nothing.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_drawing import MARGIN, layer_axis, series_color
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import bottom_legend, frame, to_payload

_HEIGHT = 380


def panels(result: LabResult) -> list[LabPanel]:
    """The damage, and the errors beside it: they need not point at the same layer."""
    return [
        LabPanel("damage", to_payload(draw_damage(result))),
        LabPanel("errors", to_payload(draw_errors(result))),
    ]


def draw_damage(result: LabResult) -> go.Figure:
    """KL by layer."""
    kl = result.arrays["kl"]
    hover = f"{text('figures.hover.layer', layer='%{x}')}: KL %{{y:.3g}}"
    figure = go.Figure(
        go.Bar(
            x=np.arange(len(kl)), y=kl, marker={"color": series_color(0)},
            hovertemplate=f"{hover}<extra>{text('figures.kind.measured')}</extra>",
        )
    )  # fmt: skip
    layer_axis(figure, len(kl))
    figure.update_yaxes(title_text=text("lab.first-layer.figure.kl"), rangemode="tozero")
    return frame(figure, "lab_first_layer_damage", _HEIGHT, showlegend=False, margin=MARGIN)


def draw_errors(result: LabResult) -> go.Figure:
    """Relative error of the layer's keys and values; a side that stayed exact has no line."""
    figure = go.Figure()
    for place, side in enumerate(("key", "value")):
        errors = result.arrays[f"{side}_error"]
        if np.isnan(errors).all():
            continue
        name = text(f"lab.first-layer.figure.{side}")
        figure.add_scatter(
            x=np.arange(len(errors)), y=errors, name=name, mode="lines+markers", marker={"size": 5},
            line={"color": series_color(place), "width": 2},
            hovertemplate=f"<b>{name}</b><br>{text('figures.hover.layer', layer='%{x}')}: %{{y:.1%}}"
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )  # fmt: skip
    layer_axis(figure, len(result.arrays["kl"]))
    figure.update_yaxes(title_text=text("lab.first-layer.figure.errors"), tickformat="~%", rangemode="tozero")
    return frame(figure, "lab_first_layer_errors", _HEIGHT, legend=bottom_legend(-0.22), margin=MARGIN)
