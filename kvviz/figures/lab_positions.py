"""NLL far beyond the trained context by way of counting positions, and the memory held meanwhile.

Knows the arrays that ``kvviz.lab.positions`` documents; measures nothing.
"""

from __future__ import annotations

import plotly.graph_objects as go

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_lines import LineStyle, mark_row, nll_lines
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import bottom_legend, escape, frame, palette, to_payload
from kvviz.units import format_bytes

_MEMORY_HEIGHT = 260


def panels(result: LabResult) -> list[LabPanel]:
    """Rolling NLL by position, then memory."""
    return [
        LabPanel("rolling", to_payload(draw_rolling(result))),
        LabPanel("memory", to_payload(draw_memory(result))),
    ]


def draw_rolling(result: LabResult) -> go.Figure:
    """A line a mode; the vertical line is the trained context."""
    marks, arrays = result.marks, result.arrays
    y_title = text(
        "lab.positions.figure.axis_nll",
        rolling=marks["rolling"], sample=marks["sample"], chunk=marks["chunk"],
    )  # fmt: skip
    names = marks["modes"]
    figure = nll_lines(
        "lab_positions_rolling", arrays["row"], arrays["rolling_nll"], names, _styles(result), y_title
    )
    if marks["context"] < result.settings["length"]:
        words = text("lab.positions.figure.context", context=f"{marks['context']:,}")
        mark_row(figure, marks["context"], words)
    return figure


def draw_memory(result: LabResult) -> go.Figure:
    """Bytes in use after each chunk."""
    at, held = result.arrays["held_at"], result.arrays["held_bytes"]
    figure = go.Figure()
    for values, name, style in zip(held, result.marks["modes"], _styles(result), strict=True):
        words = text("lab.positions.figure.hover_bytes", row="%{x}", held="%{customdata}")
        figure.add_scatter(
            x=at,
            y=values / (1 << 20),
            customdata=[format_bytes(int(value)) for value in values],
            name=escape(name),
            mode="lines",
            line={"color": style.color, "dash": style.dash, "width": style.width},
            hovertemplate=f"<b>{escape(name)}</b><br>{words}<extra>{text('figures.kind.measured')}</extra>",
        )
    figure.update_xaxes(title_text=text("figures.axis.tokens_seen"), title_standoff=6)
    figure.update_yaxes(title_text=text("lab.positions.figure.axis_bytes", unit="MiB"), rangemode="tozero")
    return frame(figure, "lab_positions_memory", _MEMORY_HEIGHT, legend=bottom_legend(-0.3), showlegend=True)


def _styles(result: LabResult) -> list[LineStyle]:
    """The mode's own style whichever others were chosen."""
    colors = palette()
    known = {
        "original": LineStyle(colors.run(1).color, "solid", 2.5),
        "in_cache": LineStyle(colors.run(0).color, "solid", 2.5),
        "wrong": LineStyle(colors.run(3).color, "dashdot", 2.5),
    }
    return [known[mode] for mode in result.settings["modes"]]
