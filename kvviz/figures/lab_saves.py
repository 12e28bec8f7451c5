"""Work and time of each new token, with a cache and without.

Knows the arrays that ``kvviz.lab.saves`` documents; measures nothing.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_drawing import MARGIN, series_color
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import bottom_legend, frame, to_payload

_HEIGHT = 340
_MODES = ("cached", "anew")


def panels(result: LabResult) -> list[LabPanel]:
    """Tokens fed, then milliseconds."""
    return [
        LabPanel("work", to_payload(_draw(result, "fed"))),
        LabPanel("time", to_payload(_draw(result, "ms"))),
    ]


def _draw(result: LabResult, array: str) -> go.Figure:
    """A bar a token and mode. The axis is logarithmic: 1 beside hundreds."""
    figure = go.Figure()
    values = result.arrays[array]
    for place, (mode, ys) in enumerate(zip(_MODES, values, strict=True)):
        name = text(f"lab.saves.mode.{mode}")
        figure.add_bar(
            x=np.arange(1, values.shape[1] + 1), y=ys, name=name, marker={"color": series_color(place)},
            hovertemplate=f"<b>{name}</b><br>"
            + text(f"lab.saves.figure.hover_{array}", n="%{x}", y="%{y:,.4~r}")
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )  # fmt: skip
    figure.update_xaxes(title_text=text("lab.saves.figure.axis_step"), title_standoff=6)
    figure.update_yaxes(title_text=text(f"lab.saves.figure.axis_{array}"), type="log", dtick=1)
    legend = bottom_legend(-0.22)
    return frame(figure, f"lab_saves_{array}", _HEIGHT, barmode="group", legend=legend, margin=MARGIN)
