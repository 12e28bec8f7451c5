"""What several figures of the laboratory draw alike. Knows numbers and words, no experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from kvviz.catalogue import text
from kvviz.figures.theme import escape, frame, linear_scale, palette

MARGIN = {"l": 8, "r": 8, "t": 30, "b": 8}


def heads_figure(
    name: str, shares: NDArray[np.float64], titles: Sequence[str], scale: str, top: float = 1.0
) -> go.Figure:
    """Layer x head heatmaps side by side: ``shares (S, L, H)``, one colour scale ``0..top`` for all."""
    count, n_layers, n_heads = shares.shape
    figure = make_subplots(
        1,
        count,
        shared_yaxes=True,
        horizontal_spacing=0.04,
        subplot_titles=[escape(title) for title in titles] if count > 1 else None,
    )
    place = text("figures.hover.layer_head", layer="%{y}", head="%{x}")
    for column in range(count):
        heading = escape(titles[column])
        figure.add_heatmap(
            z=shares[column],
            x=np.arange(n_heads),
            y=np.arange(n_layers),
            coloraxis="coloraxis",
            xgap=1,
            ygap=1,
            hovertemplate=f"<b>{heading}</b><br>{place}<br>%{{z:.1%}}"
            + f"<extra>{text('figures.kind.measured')}</extra>",
            row=1,
            col=column + 1,
        )
    figure.update_xaxes(
        title_text=text("figures.axis.head"), dtick=tick(n_heads, 9), showgrid=False, zeroline=False
    )
    figure.update_yaxes(dtick=tick(n_layers, 16), autorange="reversed", showgrid=False, zeroline=False)
    figure.update_yaxes(title_text=text("figures.axis.layer"), row=1, col=1)
    bar: dict[str, Any] = {
        "tickformat": ".0%",
        "thickness": 14,
        "outlinewidth": 0,
        "title": {"text": scale, "side": "right"},
    }
    colors = {"colorscale": linear_scale(), "cmin": 0, "cmax": top, "colorbar": bar}
    height = max(300, min(620, 110 + 14 * n_layers))
    return frame(figure, name, height, coloraxis=colors, margin=MARGIN)


def series_color(index: int) -> str:
    """Colours of up to five series: those of the runs, then the reference grey."""
    runs = palette().runs
    return runs[index].color if index < len(runs) else palette().reference


def tick(n: int, most: int) -> int:
    """A step that leaves at most ``most`` labels."""
    return max(1, -(-n // most))


def layer_axis(figure: go.Figure, n_layers: int) -> None:
    """Layers along x; few of them would get ticks between whole numbers."""
    figure.update_xaxes(
        title_text=text("figures.axis.layer"), title_standoff=6, zeroline=False,
        dtick=1 if n_layers <= 10 else None,
    )  # fmt: skip
