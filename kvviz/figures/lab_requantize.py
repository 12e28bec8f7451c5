"""Sealed once against quantized again: the first block over time, layers, and the damage to the next rows.

Knows the arrays that ``kvviz.lab.requantize`` documents; measures nothing.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_drawing import MARGIN, layer_axis, series_color
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import bottom_legend, empty_figure, escape, frame, palette, to_payload

_HEIGHT = 400
_TOP_LEGEND = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}}
_AXES = ("token", "channel", "head", "tensor")


def panels(result: LabResult) -> list[LabPanel]:
    """Growth by flush, error by layer, KL."""
    return [
        LabPanel("growth", to_payload(draw_growth(result))),
        LabPanel("layers", to_payload(draw_layers(result))),
        LabPanel("kl", to_payload(draw_kl(result))),
    ]


def draw_growth(result: LabResult) -> go.Figure:
    """The first block's key error over that of sealing it once, flush by flush: 1 is no harm."""
    arrays, figure = result.arrays, go.Figure()
    tokens = result.marks["tokens"]
    for place, spec in enumerate(result.marks["schemes"]):
        again, once = arrays["key_first_again"][place], arrays["key_first_once"][place]
        words = text(
            "lab.requantize.figure.hover_growth", tokens="%{x}", times="%{y:.3f}", error="%{customdata:.2%}"
        )
        figure.add_scatter(
            x=tokens, y=again / max(once, np.finfo(float).tiny), customdata=again, name=escape(spec),
            mode="lines+markers", line=_line(spec), marker={"size": 5},
            hovertemplate=f"<b>{escape(spec)}</b><br>{words}<extra>{text('figures.kind.measured')}</extra>",
        )  # fmt: skip
    figure.update_xaxes(title_text=text("lab.requantize.figure.tokens"), title_standoff=6)
    figure.update_yaxes(title_text=text("lab.requantize.figure.growth"))
    return frame(figure, "lab_requantize_growth", _HEIGHT, legend=bottom_legend(-0.2), margin=MARGIN)


def _line(spec: str) -> dict[str, object]:
    """A colour an axis, dashes for minmax."""
    axis = next(name for name in _AXES if f":{name}" in spec)
    return {
        "color": series_color(_AXES.index(axis)),
        "dash": "dash" if "minmax" in spec else "solid",
        "width": 2,
    }


def draw_layers(result: LabResult) -> go.Figure:
    """Key error by layer after the last flush: thin for sealed once, thick for quantized again."""
    figure = go.Figure()
    for place, spec in enumerate(result.marks["schemes"]):
        for kind, width in (("once", 1), ("again", 3)):
            values = result.arrays[f"layers_{kind}"][place]
            name = text(f"lab.requantize.figure.{kind}", spec=spec)
            figure.add_scatter(
                x=np.arange(len(values)), y=values, name=escape(spec), legendgroup=spec,
                showlegend=kind == "again", mode="lines", line={**_line(spec), "width": width},
                hovertemplate=f"<b>{escape(name)}</b><br>{text('figures.hover.layer', layer='%{x}')}"
                + f": %{{y:.2%}}<extra>{text('figures.kind.measured')}</extra>",
            )  # fmt: skip
    layer_axis(figure, result.arrays["layers_once"].shape[1])
    figure.update_yaxes(title_text=text("lab.requantize.figure.error"), tickformat="~%", rangemode="tozero")
    return frame(figure, "lab_requantize_layers", _HEIGHT, legend=bottom_legend(-0.2), margin=MARGIN)


def draw_kl(result: LabResult) -> go.Figure:
    """Bars beside each other: KL of the next rows after the last flush."""
    marks = result.marks
    if not marks["points"]:
        return empty_figure("lab_requantize_kl", text("lab.requantize.figure.no_points"), _HEIGHT)
    figure = go.Figure()
    styles = {"once": palette().runs[0], "again": palette().runs[1]}
    for kind, style in styles.items():
        values = result.arrays[f"kl_{kind}"][:, -1]
        name = text(f"lab.requantize.figure.bar_{kind}")
        figure.add_bar(
            x=[escape(spec).replace(":", ":<br>", 1) for spec in marks["schemes"]], y=values, name=name,
            text=[f"{value:.2g}" for value in values], textposition="outside", cliponaxis=False,
            marker={"color": style.color},
            hovertext=[escape(spec) for spec in marks["schemes"]],
            hovertemplate=f"<b>%{{hovertext}}</b><br>{name}: %{{y:.5f}}"
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )  # fmt: skip
    figure.update_yaxes(title_text=text("lab.requantize.figure.kl"), type="log", dtick=1)
    return frame(
        figure, "lab_requantize_kl", _HEIGHT, barmode="group", legend=_TOP_LEGEND, margin={**MARGIN, "t": 50}
    )
