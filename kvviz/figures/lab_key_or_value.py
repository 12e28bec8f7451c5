"""Few bits for keys, for values, for both: what the words lose, as bars on a logarithm.

Knows the arrays that ``kvviz.lab.key_or_value`` documents; measures nothing.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_drawing import MARGIN, series_color
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import escape, frame, to_payload

_HEIGHT = 380


def panels(result: LabResult) -> list[LabPanel]:
    """One plot."""
    return [LabPanel("damage", to_payload(draw(result)))]


def draw(result: LabResult) -> go.Figure:
    """KL by configuration, effective bits and errors under the pointer."""
    main = result.tables["key-or-value"]
    names = [escape(name) for name in result.marks["configurations"]]
    kl = result.arrays["kl"]
    hovers = [
        f"<b>{name}</b><br>"
        + text("lab.key-or-value.figure.hover", kl=f"{loss:.3g}", bits=f"{bits:.3g}", key=key, value=value)
        + f"<extra>{text('figures.kind.measured')}</extra>"
        for name, loss, bits, key, value in zip(
            names, kl, result.arrays["bits"], main.column("pair_key"), main.column("pair_value"), strict=True
        )
    ]
    figure = go.Figure(
        go.Bar(
            x=names, y=np.where(kl > 0, kl, np.nan), text=[f"{loss:.2g}" for loss in kl],
            textposition="outside", cliponaxis=False, hovertemplate=hovers,
            marker={"color": [series_color(place) for place in range(len(names))]},
        )
    )  # fmt: skip
    figure.update_yaxes(
        title_text=text("lab.key-or-value.figure.kl"), type="log", exponentformat="power", dtick=1
    )
    margin = MARGIN | {"t": 30}
    return frame(figure, "lab_key_or_value_damage", _HEIGHT, showlegend=False, margin=margin)
