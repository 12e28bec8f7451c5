"""Static scales on a text they were not learnt on: what is clipped by layer, the damage, the bits.

Knows the arrays that ``kvviz.lab.calibration`` documents; measures nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_drawing import MARGIN, layer_axis, series_color
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import bottom_legend, escape, frame, to_payload

_HEIGHT = 380


def panels(result: LabResult) -> list[LabPanel]:
    """Clipping, damage, bits."""
    return [
        LabPanel("clipped", to_payload(draw_clipped(result))),
        LabPanel("damage", to_payload(draw_damage(result))),
        LabPanel("bits", to_payload(draw_bits(result))),
    ]


def draw_clipped(result: LabResult) -> go.Figure:
    """Share of clipped values by layer, keys beside values; dynamic scales clip nothing and have no line."""
    sides = ("key", "value")
    titles = [text(f"lab.calibration.figure.{side}") for side in sides]
    figure = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.05, subplot_titles=titles)
    for column, side in enumerate(sides, start=1):
        for place, (name, shares) in enumerate(
            zip(result.marks["configurations"], result.arrays[f"clip_{side}"], strict=True)
        ):
            if np.isnan(shares).all():
                continue
            figure.add_scatter(
                x=np.arange(len(shares)), y=shares, name=escape(name), legendgroup=name,
                showlegend=column == 1, mode="lines+markers", marker={"size": 5},
                line={"color": series_color(place), "width": 2},
                hovertemplate=f"<b>{escape(name)}</b><br>{text('figures.hover.layer', layer='%{x}')}"
                + f": %{{y:.3%}}<extra>{text('figures.kind.measured')}</extra>",
                row=1, col=column,
            )  # fmt: skip
    layer_axis(figure, result.arrays["clip_key"].shape[1])
    figure.update_yaxes(
        title_text=text("lab.calibration.figure.clipped"), tickformat="~%", rangemode="tozero", col=1
    )
    return frame(figure, "lab_calibration_clipped", _HEIGHT, legend=bottom_legend(-0.22), margin=MARGIN)


def draw_damage(result: LabResult) -> go.Figure:
    """KL of every configuration; perplexity under the pointer."""
    main = result.tables["calibration"]
    custom = list(zip(main.column("ppl"), main.column("top1"), strict=True))
    words = text(
        "lab.calibration.figure.hover_damage",
        kl="%{y:.5f}", ppl="%{customdata[0]:.4f}", top1="%{customdata[1]:.2%}",
    )  # fmt: skip
    figure = _bars(result, "kl", ".4g", words, custom)
    figure.update_yaxes(title_text=text("lab.calibration.figure.kl"), rangemode="tozero")
    return frame(figure, "lab_calibration_damage", _HEIGHT, showlegend=False, margin=MARGIN)


def draw_bits(result: LabResult) -> go.Figure:
    """Effective bits; what calibration and guard take under the pointer."""
    main = result.tables["calibration"]
    custom = list(zip(main.column("calibration_bytes"), main.column("guard_bytes"), strict=True))
    words = text(
        "lab.calibration.figure.hover_bits",
        bits="%{y:.3f}", learnt="%{customdata[0]:,}", guard="%{customdata[1]:,}",
    )  # fmt: skip
    figure = _bars(result, "pair_bits", ".3f", words, custom)
    figure.update_yaxes(title_text=text("lab.calibration.figure.bits"), rangemode="tozero")
    return frame(figure, "lab_calibration_bits", _HEIGHT, showlegend=False, margin=MARGIN)


def _bars(result: LabResult, column: str, number: str, words: str, custom: list[Any]) -> go.Figure:
    main = result.tables["calibration"]
    values: list[Any] = main.column(column)
    return go.Figure(
        go.Bar(
            x=[text(f"lab.calibration.short.{kind}") for kind in result.marks["kinds"]],
            y=values,
            text=[f"{value:{number}}" for value in values],
            textposition="outside",
            cliponaxis=False,
            customdata=custom,
            marker={"color": [series_color(place) for place in range(len(values))]},
            hovertext=[escape(str(name)) for name in main.column("configuration")],
            hovertemplate=f"<b>%{{hovertext}}</b><br>{words}<extra>{text('figures.kind.measured')}</extra>",
        )
    )
