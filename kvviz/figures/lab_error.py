"""The error by head, at the attention output, and by channel and block: where one is spoilt, it is seen.

Knows the arrays that ``kvviz.lab.error`` documents; measures nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_drawing import MARGIN, heads_figure, layer_axis, series_color, tick
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import bottom_legend, frame, linear_scale, to_payload

_SIDES = ("key", "value")
_HEIGHT, _GRID_HEIGHT = 360, 620


def panels(result: LabResult) -> list[LabPanel]:
    """Heads, outputs, then channels over blocks."""
    return [
        LabPanel("outputs", to_payload(draw_outputs(result))),
        LabPanel("heads", to_payload(draw_heads(result))),
        LabPanel("places", to_payload(draw_places(result))),
    ]


def draw_heads(result: LabResult) -> go.Figure:
    """Layer x KV head, keys beside values on one scale."""
    both = np.stack([result.arrays[f"{side}_heads"] for side in _SIDES])
    titles = [text(f"lab.error.figure.{side}") for side in _SIDES]
    top = max(float(both.max()), 1e-6)
    figure = heads_figure("lab_error_heads", both, titles, text("lab.error.figure.relative"), top)
    figure.update_xaxes(title_text=text("lab.error.figure.kv_head"))
    words = text("lab.error.figure.hover_head", layer="%{y}", head="%{x}")
    for trace, title in zip(figure.data, titles, strict=True):
        trace.hovertemplate = (
            f"<b>{title}</b><br>{words}: %{{z:.2%}}<extra>{text('figures.kind.measured')}</extra>"
        )
    return figure


def draw_outputs(result: LabResult) -> go.Figure:
    """The attention output's error by layer: its own, and with that of all layers before it."""
    figure = go.Figure()
    for place, name in enumerate(("before", "alone")):
        values, label = result.arrays[name], text(f"lab.error.figure.{name}")
        figure.add_scatter(
            x=np.arange(len(values)), y=values, name=label, mode="lines+markers",
            line={"color": series_color(1 - place), "width": 2, "dash": "solid" if place else "dash"},
            hovertemplate=f"<b>{label}</b><br>{text('figures.hover.layer', layer='%{x}')}: %{{y:.3%}}"
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )  # fmt: skip
    layer_axis(figure, len(result.arrays["before"]))
    figure.update_yaxes(title_text=text("lab.error.figure.output"), tickformat="~%", rangemode="tozero")
    return frame(figure, "lab_error_outputs", _HEIGHT, legend=bottom_legend(-0.22), margin=MARGIN)


def draw_places(result: LabResult) -> go.Figure:
    """Above, layer x channel of all KV heads; below, layer x sealed block; one colour scale."""
    arrays, marks = result.arrays, result.marks
    titles = [text(f"lab.error.figure.{kind}_{side}") for kind in ("channels", "blocks") for side in _SIDES]
    figure = make_subplots(2, 2, subplot_titles=titles, horizontal_spacing=0.08, vertical_spacing=0.16)
    most = max(float(arrays[f"{side}_{kind}"].max()) for kind in ("channels", "blocks") for side in _SIDES)
    for column, side in enumerate(_SIDES, start=1):
        head_dim = arrays[f"{side}_channels"].shape[1] // arrays[f"{side}_heads"].shape[1]
        for row, kind in enumerate(("channels", "blocks"), start=1):
            values = arrays[f"{side}_{kind}"]
            at = np.arange(values.shape[1])
            x = at
            if kind == "blocks":  # a cell reaches from its block's first position to the next one's
                edges = marks["first"] + marks["block_size"] * np.arange(values.shape[1] + 1)
                at, x = edges[:-1], edges - 0.5
            words = text(
                f"lab.error.figure.hover_{kind}", layer="%{y}", place="%{customdata}", head_dim=head_dim
            )
            figure.add_heatmap(
                z=values.astype(np.float32), x=x, coloraxis="coloraxis", row=row, col=column,
                customdata=np.tile(at, (len(values), 1)),
                hovertemplate=f"{words}<br>%{{z:.2%}}<extra>{text('figures.kind.measured')}</extra>",
            )  # fmt: skip
            figure.update_xaxes(title_text=text(f"lab.error.figure.axis_{kind}"), row=row, col=column)
    n_layers = arrays["alone"].shape[0]
    figure.update_xaxes(showgrid=False, zeroline=False, title_standoff=4)
    figure.update_yaxes(autorange="reversed", showgrid=False, zeroline=False, dtick=tick(n_layers, 8))
    figure.update_yaxes(title_text=text("figures.axis.layer"), col=1)
    bar: dict[str, Any] = {"tickformat": ".0%", "thickness": 14, "outlinewidth": 0}
    colors = {"colorscale": linear_scale(), "cmin": 0, "cmax": max(most, 1e-6), "colorbar": bar}
    return frame(figure, "lab_error_places", _GRID_HEIGHT, coloraxis=colors, margin=MARGIN)
