"""Figures of "Does it need meaning?": weight on the first tokens of every variant, perplexities, heads."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_drawing import MARGIN, heads_figure, series_color
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import bottom_legend, escape, frame, to_payload, token_label


def panels(result: LabResult) -> list[LabPanel]:
    """Positions, perplexities, heads."""
    names = [_name(variant) for variant in result.marks["variants"]]
    scale = text("lab.meaning.figure.weight", row=result.marks["from_row"])
    heads = heads_figure("lab_meaning_heads", result.arrays["head_mass"], names, scale)
    return [
        LabPanel("positions", to_payload(draw_positions(result))),
        LabPanel("perplexity", to_payload(draw_perplexities(result))),
        LabPanel("heads", to_payload(heads)),
    ]


def _name(variant: str) -> str:
    return text(f"lab.meaning.variant.{variant}")


def draw_positions(result: LabResult) -> go.Figure:
    """One small plot a variant on one scale: bars of the weight on each token, the tokens below."""
    variants: list[str] = result.marks["variants"]
    masses = result.arrays["position_mass"]  # (V, P)
    figure = make_subplots(
        1,
        len(variants),
        shared_yaxes=True,
        horizontal_spacing=0.02,
        subplot_titles=[_name(variant) for variant in variants],
    )
    positions = list(range(masses.shape[1]))
    for index, variant in enumerate(variants):
        labels = [token_label(word, 12) for word in result.marks["labels"][variant]]
        hover = text(
            "lab.meaning.figure.token",
            variant=_name(variant),
            position="%{x}",
            token="%{customdata}",
            weight="%{y:.1%}",
        )
        figure.add_bar(
            x=positions,
            y=masses[index],
            customdata=labels,
            marker={"color": series_color(index)},
            showlegend=False,
            hovertemplate=hover + f"<extra>{text('figures.kind.measured')}</extra>",
            row=1,
            col=index + 1,
        )
        figure.update_xaxes(
            tickvals=positions, ticktext=labels, tickangle=-60, showgrid=False, row=1, col=index + 1
        )
    top = float(np.max(masses)) * 1.08
    figure.update_yaxes(range=[0, top], tickformat=".0%")
    title = text("lab.meaning.figure.weight", row=result.marks["from_row"])
    figure.update_yaxes(title_text=title, row=1, col=1)
    return frame(figure, "lab_meaning_positions", 380, margin=MARGIN)


def draw_perplexities(result: LabResult) -> go.Figure:
    """Two bars a variant: full cache, and sinks and window only."""
    table = result.tables["variants"]
    names = [escape(_name(variant)) for variant in result.marks["variants"]]
    window = result.marks["from_row"] - 4
    series = {
        "ppl_keep": text("lab.meaning.figure.keep"),
        "ppl_streaming": text("lab.meaning.figure.streaming", window=window),
    }
    figure = go.Figure()
    for index, (key, name) in enumerate(series.items()):
        figure.add_bar(
            x=names,
            y=table.column(key),
            name=name,
            marker={"color": series_color(index)},
            hovertemplate=f"<b>%{{x}}</b><br>{name}<br>{text('lab.meaning.figure.perplexity')} %{{y:.2f}}"
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )
    figure.update_yaxes(title_text=text("lab.meaning.figure.perplexity"), rangemode="tozero")
    return frame(
        figure,
        "lab_meaning_perplexity",
        340,
        barmode="group",
        legend=bottom_legend(-0.2),
        margin={**MARGIN, "t": 10},
    )
