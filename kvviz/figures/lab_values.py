"""One block's values as a map, every channel's largest, and the values among the quantizer's levels.

Knows the arrays that ``kvviz.lab.values`` documents; measures nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_drawing import MARGIN, series_color, tick
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import bottom_legend, frame, linear_scale, palette, to_payload

_MAP_HEIGHT, _HEIGHT = 460, 360
_MOST_LINES = 16  # levels that get a line of their own
_FINE = 1000  # steps of the colour axis in a unit of asinh: integers travel in half the bytes


def panels(result: LabResult) -> list[LabPanel]:
    """The map, the channels, the levels."""
    return [
        LabPanel("map", to_payload(draw_map(result))),
        LabPanel("channels", to_payload(draw_channels(result))),
        LabPanel("levels", to_payload(draw_levels(result))),
    ]


def draw_map(result: LabResult) -> go.Figure:
    """Token x channel as the cache holds it and, when that differs, as it is coded; colours step evenly in
    asinh of the value, so that one huge channel does not leave all others one colour."""
    arrays, marks = result.arrays, result.marks
    maps = ["held", "coded"] if marks["changed"] else ["held"]
    figure = make_subplots(
        1,
        len(maps),
        shared_yaxes=True,
        horizontal_spacing=0.04,
        subplot_titles=[text(f"lab.values.figure.{name}") for name in maps] if len(maps) > 1 else None,
    )
    unit = max(float(np.median(np.abs(arrays["value"]))), 1e-30)
    shown = {"held": arrays["value"], "coded": arrays["given"]}
    most = max(float(np.arcsinh(np.abs(shown[name]) / unit).max()) for name in maps)
    rows = marks["first"] + np.arange(arrays["value"].shape[0])
    for column, name in enumerate(maps, start=1):
        custom, words = _hover(arrays, name, changed=marks["changed"])
        figure.add_heatmap(
            z=np.round(_FINE * np.arcsinh(shown[name] / unit)).astype(np.int16),
            y=rows,
            customdata=custom,
            coloraxis="coloraxis",
            hovertemplate=f"{words}<extra>{text('figures.kind.measured')}</extra>",
            row=1,
            col=column,
        )
    figure.update_xaxes(title_text=text("lab.values.figure.channel"), showgrid=False, zeroline=False)
    figure.update_yaxes(autorange="reversed", showgrid=False, zeroline=False, dtick=tick(len(rows), 9))
    figure.update_yaxes(title_text=text("lab.values.figure.position"), row=1, col=1)
    most = max(most, 1e-3)
    ticks = np.sinh(np.linspace(-most, most, 7)) * unit
    bar: dict[str, Any] = {
        "tickvals": (_FINE * np.linspace(-most, most, 7)).tolist(),
        "ticktext": [_short(value) for value in ticks],
        "thickness": 14,
        "outlinewidth": 0,
    }
    colors = {"colorscale": linear_scale(), "cmin": -_FINE * most, "cmax": _FINE * most, "colorbar": bar}
    return frame(figure, "lab_values_map", _MAP_HEIGHT, coloraxis=colors, margin=MARGIN)


def _short(value: float) -> str:
    return "0" if abs(value) < 1e-12 else f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"


def _hover(arrays: dict[str, NDArray[Any]], name: str, *, changed: bool) -> tuple[NDArray[np.float32], str]:
    """Exact numbers of every cell, ``(t, D, 3 or 4)``, and the words that show them."""
    place = text("lab.values.figure.place", position="%{y}", channel="%{x}")
    if name == "held" and changed:
        columns = [arrays["value"], arrays["restored"], arrays["kept"]]
        words = text(
            "lab.values.figure.hover_held", value="%{customdata[0]:.6g}", restored="%{customdata[1]:.6g}"
        )
    elif name == "held":
        columns = [arrays["value"], arrays["restored"], arrays["code"], arrays["kept"]]
        words = text(
            "lab.values.figure.hover_both",
            value="%{customdata[0]:.6g}", restored="%{customdata[1]:.6g}", code="%{customdata[2]}",
            kept="%{customdata[3]}",
        )  # fmt: skip
    else:
        columns = [arrays["given"], arrays["decoded"], arrays["code"]]
        words = text(
            "lab.values.figure.hover_coded",
            value="%{customdata[0]:.6g}", restored="%{customdata[1]:.6g}", code="%{customdata[2]}",
        )  # fmt: skip
    return np.stack(columns, axis=-1).astype(np.float32), f"<b>{place}</b><br>{words}"


def draw_channels(result: LabResult) -> go.Figure:
    """The largest magnitude of each channel, the median channel, outliers, and the largest error."""
    arrays, marks = result.arrays, result.marks
    held, coded = arrays["channel_max"]
    channels = np.arange(held.shape[0])
    figure = go.Figure()
    series = [("held", held, "solid")] + ([("coded", coded, "dash")] if marks["changed"] else [])
    for place, (name, maxima, dash) in enumerate(series):
        figure.add_scatter(
            x=channels, y=maxima, name=text(f"lab.values.figure.max_{name}"), mode="lines",
            line={"color": series_color(place), "dash": dash, "width": 2, "shape": "hvh"},
            hovertemplate=_channel_words(f"max_{name}"),
        )  # fmt: skip
        found = marks["outliers"][place]
        if found:
            figure.add_scatter(
                x=found, y=maxima[found], name=text(f"lab.values.figure.outlier_{name}"), mode="markers",
                marker={"color": series_color(place), "size": 11, "symbol": "diamond"},
                hovertemplate=_channel_words(f"max_{name}"),
            )  # fmt: skip
    errors = arrays["channel_error"]
    figure.add_scatter(
        x=channels, y=np.where(errors > 0, errors, np.nan), name=text("lab.values.figure.max_error"),
        mode="markers", marker={"color": palette().reference, "size": 6, "symbol": "x"},
        hovertemplate=_channel_words("max_error"),
    )  # fmt: skip
    if marks["medians"][0] > 0:
        figure.add_hline(
            y=marks["medians"][0], line={"color": palette().reference, "dash": "dot", "width": 1}
        )
    figure.update_xaxes(title_text=text("lab.values.figure.channel"), title_standoff=6, zeroline=False)
    figure.update_yaxes(title_text=text("lab.values.figure.magnitude"), type="log", dtick=1)
    return frame(figure, "lab_values_channels", _HEIGHT, legend=bottom_legend(-0.22), margin=MARGIN)


def _channel_words(name: str) -> str:
    words = text("lab.values.figure.hover_channel", channel="%{x}", value="%{y:.6g}")
    title = text(f"lab.values.figure.{name}")
    return f"<b>{title}</b><br>{words}<extra>{text('figures.kind.measured')}</extra>"


def draw_levels(result: LabResult) -> go.Figure:
    """How many values lie where between the levels, and how many took each level."""
    arrays = result.arrays
    edges, counts = arrays["bin_edges"], arrays["bin_counts"]
    levels, taken = arrays["levels"], arrays["level_counts"]
    figure = go.Figure(
        go.Bar(
            x=(edges[1:] + edges[:-1]) / 2, y=counts, width=float(edges[1] - edges[0]),
            name=text("lab.values.figure.values"), marker={"color": series_color(0), "line": {"width": 0}},
            hovertemplate=text("lab.values.figure.hover_bin", place="%{x:.3f}", count="%{y}")
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )
    )  # fmt: skip
    total = max(1, int(taken.sum()))
    figure.add_scatter(
        x=levels, y=np.where(taken > 0, taken, np.nan), name=text("lab.values.figure.level"), mode="markers",
        marker={"color": series_color(1), "size": 8, "symbol": "diamond"}, customdata=taken / total,
        hovertemplate=text(
            "lab.values.figure.hover_level", level="%{x:.4g}", count="%{y}", share="%{customdata:.1%}"
        ) + f"<extra>{text('figures.kind.measured')}</extra>",
    )  # fmt: skip
    if len(levels) <= _MOST_LINES:
        for level in levels:
            figure.add_vline(x=float(level), line={"color": series_color(1), "width": 1, "dash": "dot"})
    figure.update_xaxes(title_text=text("lab.values.figure.steps"), title_standoff=6, zeroline=False)
    figure.update_yaxes(title_text=text("lab.values.figure.count"), type="log", dtick=1)
    return frame(figure, "lab_values_levels", _HEIGHT, bargap=0, legend=bottom_legend(-0.22), margin=MARGIN)
