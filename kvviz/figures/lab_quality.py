"""The Pareto plot: bits really stored against what the words lose, one point a scheme.

Knows the arrays that ``kvviz.lab.quality`` documents; measures nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import bottom_legend, escape, frame, palette, to_payload

_HEIGHT = 520
_LEAST = 1e-9  # a logarithm has no place for what rounding made of nothing


def panels(result: LabResult) -> list[LabPanel]:
    """One plot."""
    return [LabPanel("pareto", to_payload(draw(result)))]


def draw(result: LabResult) -> go.Figure:
    """Points that carry their configuration's name (``customdata``), the front joined."""
    bits, kl, front = (result.arrays[name] for name in ("bits", "kl", "front"))
    kl = np.maximum(kl, _LEAST)
    labels: list[str] = result.marks["labels"]
    figure = go.Figure()
    line = [i for i in np.lexsort((kl, bits)).tolist() if front[i]]
    figure.add_scatter(
        x=bits[line],
        y=kl[line],
        mode="lines",
        name=text("lab.quality.figure.front"),
        line={"color": palette().run(0).color, "width": 2},
        hoverinfo="skip",
    )
    figure.add_scatter(x=bits, y=kl, mode="markers+text", showlegend=False, **_points(result, labels, front))
    figure.update_xaxes(
        title_text=text("lab.quality.figure.bits"), title_standoff=6, zeroline=False, range=_around(bits)
    )
    figure.update_yaxes(
        title_text=text("lab.quality.figure.kl"), type="log", dtick=1, exponentformat="power", zeroline=False
    )
    margin = {"l": 8, "r": 8, "t": 10, "b": 8}
    return frame(figure, "lab_quality_pareto", _HEIGHT, legend=bottom_legend(-0.14), margin=margin)


def _points(result: LabResult, labels: list[str], front: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Marks, words and hovers of the points: those of the front are filled diamonds."""
    main = result.tables["quality"]
    columns = (main.column(key) for key in ("pair_bits", "kl", "pair_key", "pair_value"))
    hovers = [
        f"<b>{escape(label)}</b><br>"
        + text("lab.quality.figure.hover", bits=f"{bits:.3g}", kl=f"{kl:.3g}", key=key, value=value)
        + f"<extra>{text('figures.kind.measured')}</extra>"
        for label, bits, kl, key, value in zip(labels, *columns, strict=True)
    ]
    on, off = palette().run(0).color, palette().run(1).color
    return {
        "customdata": labels,
        "text": [escape(name) for name in result.marks["schemes"]],
        "textposition": placed(result.arrays["bits"], np.maximum(result.arrays["kl"], _LEAST)),
        "textfont": {"size": 11},
        "hovertemplate": hovers,
        "marker": {
            "size": 12,
            "color": [on if is_front else off for is_front in front],
            "symbol": ["diamond" if is_front else "circle" for is_front in front],
        },
    }


def placed(bits: np.ndarray[Any, Any], kl: np.ndarray[Any, Any]) -> list[str]:
    """Where each point's words stand: beside it, away from the neighbour that is close above or below."""
    places = []
    for i in range(len(bits)):
        near = [
            float(np.log10(kl[j] / kl[i]))
            for j in range(len(bits))
            if j != i and abs(bits[j] - bits[i]) < 1.2 and abs(np.log10(kl[j] / kl[i])) < 0.12
        ]
        if not near:
            places.append("middle right")
        else:
            places.append("bottom right" if sum(near) > 0 else "top right")
    return places


def _around(bits: np.ndarray[Any, Any]) -> list[float]:
    """The axis' range, with room for words on the right."""
    low, high = float(bits.min()), float(bits.max())
    return [low - 0.3, high + max(1.0, 0.2 * (high - low))]
