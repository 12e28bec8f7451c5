"""Figures of the experiment on the middle: its share by head, and all parts by layer and by row."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_drawing import MARGIN, heads_figure
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import bottom_legend, frame, palette, to_payload

#: the parts wear the colours of the tiers they are
_TIERS = {"sink": "sink", "middle": "exact", "window": "window"}


def panels(result: LabResult) -> list[LabPanel]:
    """Heads, layers, rows."""
    middle = result.arrays["mass"][1:2]
    title = text("lab.middle.part.middle")
    heads = heads_figure("lab_middle_heads", middle, [title], text("lab.middle.figure.share"))
    return [
        LabPanel("heads", to_payload(heads)),
        LabPanel("layers", to_payload(draw_layers(result))),
        LabPanel("rows", to_payload(draw_rows(result))),
    ]


def draw_layers(result: LabResult) -> go.Figure:
    """Stacked bars: the mean share of each part, layer by layer."""
    means = result.arrays["mass"].mean(-1)  # (3, L)
    figure = go.Figure()
    place = text("figures.hover.layer", layer="%{x}")
    for part, shares in zip(result.marks["parts"], means, strict=True):
        style = palette().tiers[_TIERS[part]]
        name = text(f"lab.middle.part.{part}")
        figure.add_bar(
            x=np.arange(means.shape[1]),
            y=shares,
            name=name,
            marker={"color": style.color},
            hovertemplate=f"<b>{name}</b><br>{place}<br>%{{y:.1%}}"
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )
    figure.update_xaxes(title_text=text("figures.axis.layer"), title_standoff=6)
    figure.update_yaxes(title_text=text("figures.axis.mean_share"), range=[0, 1], tickformat=".0%")
    return frame(
        figure,
        "lab_middle_layers",
        340,
        barmode="stack",
        bargap=0.15,
        legend=bottom_legend(-0.25),
        margin={**MARGIN, "t": 10},
    )


def draw_rows(result: LabResult) -> go.Figure:
    """One line a part: its mean share, row by row, as the middle grows."""
    by_row = result.arrays["by_row"]  # (3, R)
    rows = result.marks["first_row"] + np.arange(by_row.shape[1])
    figure = go.Figure()
    for part, shares in zip(result.marks["parts"], by_row, strict=True):
        style = palette().tiers[_TIERS[part]]
        name = text(f"lab.middle.part.{part}")
        figure.add_scatter(
            x=rows,
            y=shares,
            name=name,
            mode="lines",
            line={"color": style.color, "width": 1.5},
            hovertemplate=f"<b>{name}</b><br>{text('lab.middle.figure.row', row='%{x}')}<br>%{{y:.1%}}"
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )
    figure.update_xaxes(title_text=text("lab.middle.figure.rows"), title_standoff=6)
    figure.update_yaxes(title_text=text("figures.axis.mean_share"), range=[0, 1], tickformat=".0%")
    return frame(figure, "lab_middle_rows", 340, legend=bottom_legend(-0.25), margin={**MARGIN, "t": 10})
