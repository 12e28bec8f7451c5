"""Figures of "Is there a sink?": first-token mass by head, sink rates, what the first token is inside."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_drawing import MARGIN, heads_figure, series_color, tick
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import bottom_legend, escape, frame, linear_scale, to_payload, token_label
from kvviz.units import format_share

_SIDES = ("hidden", "key", "value")


def panels(result: LabResult) -> list[LabPanel]:
    """Heads, rates, norms."""
    kinds = [_kind(kind) for kind in result.marks["kinds"]]
    heads = heads_figure("lab_sink_mass", result.arrays["mass"], kinds, text("lab.sink.figure.weight"))
    return [
        LabPanel("mass", to_payload(heads)),
        LabPanel("rate", to_payload(draw_rates(result))),
        LabPanel("norms", to_payload(draw_norms(result))),
    ]


def _kind(kind: str) -> str:
    return text(f"lab.sink.control.kinds.option.{kind}")


def draw_rates(result: LabResult) -> go.Figure:
    """Bars of the sink rate for each position, one colour a kind."""
    rows = result.tables["rates"].rows
    figure = go.Figure()
    for index, kind in enumerate(result.marks["kinds"]):
        mine = [row for row in rows if row[0] == kind]
        hover = text(
            "lab.sink.figure.rate_hover",
            kind=_kind(kind),
            k="%{x}",
            share="%{y:.1%}",
            weight="%{customdata:.1%}",
        )
        figure.add_bar(
            x=[row[1] for row in mine],
            y=[row[2] for row in mine],
            customdata=[row[3] for row in mine],
            name=_kind(kind),
            marker={"color": series_color(index)},
            hovertemplate=hover + f"<extra>{text('figures.kind.measured')}</extra>",
        )
    epsilon = format_share(result.marks["epsilon"])
    figure.update_xaxes(title_text=text("lab.sink.figure.k"), dtick=1, title_standoff=6)
    figure.update_yaxes(
        title_text=text("lab.sink.figure.rate_axis", epsilon=epsilon), range=[0, 1], tickformat=".0%"
    )
    return frame(
        figure, "lab_sink_rate", 320, legend=bottom_legend(-0.25), barmode="group",
        margin={**MARGIN, "t": 10},
    )  # fmt: skip


def draw_norms(result: LabResult) -> go.Figure:
    """Above, norms by layer: the first token against the median of the others. Below, the largest
    activation of every token and layer in the first text."""
    kinds: list[str] = result.marks["kinds"]
    figure = make_subplots(
        2,
        3,
        specs=[[{}, {}, {}], [{"colspan": 3}, None, None]],
        vertical_spacing=0.2,
        horizontal_spacing=0.08,
        subplot_titles=[
            *(text(f"lab.sink.figure.{side}") for side in _SIDES),
            text("lab.sink.figure.peak", kind=_kind(kinds[0])),
        ],
    )
    for column, side in enumerate(_SIDES, start=1):
        _add_norms(figure, column, result, side)
    _add_peaks(figure, result)
    figure.update_xaxes(title_text=text("figures.axis.layer"), title_standoff=4, row=1)
    figure.update_yaxes(type="log", dtick=1, row=1)
    figure.update_yaxes(title_text=text("lab.sink.figure.norm_axis"), row=1, col=1)
    return frame(figure, "lab_sink_norms", 780, legend=bottom_legend(-0.24), margin=MARGIN)


def _add_norms(figure: go.Figure, column: int, result: LabResult, side: str) -> None:
    norms = result.arrays[f"{side}_norm"]  # (S, L, T)
    place = text("figures.hover.layer", layer="%{x}")
    for index, kind in enumerate(result.marks["kinds"]):
        lines = {"first": norms[index, :, 0]}
        if norms.shape[-1] > 1:
            lines["others"] = np.median(norms[index, :, 1:], axis=-1)
        for line, values in lines.items():
            name = text(f"lab.sink.figure.{line}", kind=_kind(kind))
            figure.add_scatter(
                x=np.arange(norms.shape[1]),
                y=values,
                name=escape(name),
                mode="lines",
                line={
                    "color": series_color(index),
                    "width": 3 if line == "first" else 1.5,
                    "dash": "solid" if line == "first" else "dot",
                },
                legendgroup=f"{kind}.{line}",
                showlegend=column == 1,
                hovertemplate=f"<b>{escape(name)}</b><br>{place}<br>%{{y:.4g}}"
                + f"<extra>{text('figures.kind.measured')}</extra>",
                row=1,
                col=column,
            )


def _add_peaks(figure: go.Figure, result: LabResult) -> None:
    peak = result.arrays["peak"][0]  # (L, T)
    n_layers, tokens = peak.shape
    floor = float(peak[peak > 0].min()) if (peak > 0).any() else 1.0
    labels = [token_label(word) for word in result.marks["labels"][result.marks["kinds"][0]]]
    decades = np.log10(np.maximum(peak, floor))
    shown = np.arange(np.floor(decades.min()), np.ceil(decades.max()) + 1)
    hover = text(
        "lab.sink.figure.peak_hover", layer="%{y}", position="%{x}", token="%{customdata[0]}",
        value="%{customdata[1]:.4g}",
    )  # fmt: skip
    rows = [[[label, float(size)] for label, size in zip(labels, sizes, strict=True)] for sizes in peak]
    figure.add_heatmap(
        z=decades,
        x=np.arange(tokens),
        y=np.arange(n_layers),
        customdata=rows,
        colorscale=linear_scale(),
        colorbar={
            "thickness": 14,
            "outlinewidth": 0,
            "len": 0.42,
            "y": 0.2,
            "tickvals": shown,
            "ticktext": [f"{10.0**d:g}" for d in shown],
            "title": {"text": text("lab.sink.figure.peak_scale"), "side": "right"},
        },
        hovertemplate=hover + f"<extra>{text('figures.kind.measured')}</extra>",
        row=2,
        col=1,
    )
    figure.update_xaxes(
        title_text=text("lab.sink.figure.position"),
        tickvals=list(range(0, tokens, tick(tokens, 32))),
        ticktext=labels[:: tick(tokens, 32)],
        tickangle=-60,
        tickfont={"size": 10},
        showgrid=False,
        row=2,
        col=1,
    )
    figure.update_yaxes(
        title_text=text("figures.axis.layer"), autorange="reversed", showgrid=False, row=2, col=1
    )
