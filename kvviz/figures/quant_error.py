"""Quantization error by layer, K and V apart, from the energies taken at sealing time.

Knows sums of squares; sees no tensor. The mean over a layer can hide a spoilt channel behind a large one,
so the worst and the median channel stand beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from kvviz.catalogue import text
from kvviz.figures.theme import (
    bottom_legend,
    empty_figure,
    escape,
    frame,
    palette,
    record_state,
    run_letter,
    run_name,
    to_payload,
    wrapped,
)
from kvviz.record import RunRecord

Measure = Literal["relative", "snr_db"]
HEIGHT = 420
_SIDES = ("key", "value")
_ROWS = ("layer", "worst", "median")


@dataclass(frozen=True, slots=True)
class SideError:
    """Relative errors of one side, each ``(L,)``: of the whole layer, of its worst and its median channel.

    ``sqrt(error energy / signal energy)``; 0 is exact, NaN means that there is no signal to compare with.
    """

    layer: NDArray[np.float64]
    worst: NDArray[np.float64]
    median: NDArray[np.float64]

    @property
    def is_exact(self) -> bool:
        """True when this side lost nothing in any layer."""
        return not np.nansum(self.worst) and not np.nansum(self.layer)


@dataclass(frozen=True, slots=True)
class QuantError:
    """Errors of everything one run has sealed."""

    sealed_tokens: int
    key: SideError
    value: SideError
    kind: str = "measured"  # or ``stored``


def quant_error_data(record: RunRecord) -> QuantError | None:
    """Errors by layer; None when nothing is sealed."""
    energies = record.seal_error
    if energies is None or not energies.sealed_tokens:
        return None
    return QuantError(
        energies.sealed_tokens,
        side_error(energies.key_signal, energies.key_error),
        side_error(energies.value_signal, energies.value_error),
        record.kind,
    )


def side_error(signal: NDArray[np.float64], error: NDArray[np.float64]) -> SideError:
    """Errors of one side from its energies, both ``(L, H_kv, D)``."""
    n_layers = signal.shape[0]
    channels = relative_error(signal, error).reshape(n_layers, -1)
    known = [row[np.isfinite(row)] for row in channels]
    return SideError(
        layer=relative_error(signal.sum((1, 2)), error.sum((1, 2))),
        worst=np.asarray([row.max() if row.size else np.nan for row in known]),
        median=np.asarray([np.median(row) if row.size else np.nan for row in known]),
    )


def relative_error(signal: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
    """``sqrt(error / signal)``; 0 where there is no error, NaN where there is an error and no signal."""
    ratio = np.full(signal.shape, np.nan)
    np.divide(error, signal, out=ratio, where=signal > 0)
    ratio[error == 0] = 0.0
    root: NDArray[np.float64] = np.sqrt(ratio)
    return root


def snr_db(relative: NDArray[np.float64]) -> NDArray[np.float64]:
    """``10 log10(signal / error)`` of a relative error; NaN where nothing was lost (an infinite ratio)."""
    safe = np.where(relative > 0, relative, np.nan)
    return -20 * np.log10(safe)


def quant_error_figure(records: Sequence[RunRecord], measure: Measure = "relative") -> dict[str, Any]:
    """Error by layer of every run, K beside V on one scale, as a JSON-ready payload."""
    data = [quant_error_data(record) for record in records]
    if not any(item is not None for item in data):
        waiting = not any(record.memory for record in records)
        key = record_state(records) if waiting else "figures.quant_error.none_sealed"
        return to_payload(empty_figure("quant_error", text(key), HEIGHT))
    names = [run_name(i, record) for i, record in enumerate(records)]
    return to_payload(draw_quant_error(data, names, measure))


def draw_quant_error(data: Sequence[QuantError | None], names: Sequence[str], measure: Measure) -> go.Figure:
    """Lines for the whole layer, markers for the worst and the median channel, sentences for the rest."""
    titles = [text(f"figures.quant_error.{side}") for side in _SIDES]
    figure = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.05, subplot_titles=titles)
    shown: set[str] = set()
    for column, side in enumerate(_SIDES, start=1):
        sentences = []
        for i, item in enumerate(data):
            if item is None:
                sentences.append(text("figures.quant_error.run_none_sealed", run=run_letter(i)))
                continue
            errors: SideError = getattr(item, side)
            if errors.is_exact:
                sentences.append(text(f"figures.quant_error.{side}_exact", run=run_letter(i)))
                continue
            for row in _ROWS:
                trace = _trace(errors, row, names[i], i, measure, item.kind)
                trace.legendgroup = f"{i}.{row}"
                trace.showlegend = trace.legendgroup not in shown
                shown.add(trace.legendgroup)
                figure.add_trace(trace, row=1, col=column)
        if len(sentences) == len(data):
            figure.add_scatter(x=[], y=[], showlegend=False, row=1, col=column)  # so that the axes are drawn
        words = [f'<span style="font-size:12px">{wrapped(sentence, 24)}</span>' for sentence in sentences]
        figure.layout.annotations[column - 1].text = "<br>".join([titles[column - 1], *words])
    figure.update_xaxes(title_text=text("figures.axis.layer"), nticks=8, title_standoff=6, zeroline=False)
    figure.update_yaxes(title_text=text(f"figures.quant_error.axis_{measure}"), row=1, col=1)
    if measure == "relative":
        figure.update_yaxes(type="log", dtick=1, tickformat="~%")
    lines = max(title.text.count("<br>") for title in figure.layout.annotations)
    margin = {"l": 8, "r": 8, "t": 34 + 17 * lines, "b": 8}
    return frame(figure, "quant_error", HEIGHT, legend=bottom_legend(-0.22), margin=margin)


def _trace(errors: SideError, row: str, name: str, index: int, measure: Measure, kind: str) -> go.Scatter:
    style = palette().run(index)
    relative: NDArray[np.float64] = getattr(errors, row)
    drawn = np.where(relative > 0, relative, np.nan)
    label = text(f"figures.quant_error.{row}")
    words = text("figures.quant_error.hover", relative="%{customdata[0]:.3%}", snr="%{customdata[1]:.1f}")
    place = text("figures.hover.layer", layer="%{x}")
    symbol = {"layer": style.symbol, "worst": "triangle-up-open", "median": "line-ew-open"}[row]
    return go.Scatter(
        x=np.arange(len(relative)),
        y=drawn if measure == "relative" else snr_db(relative),
        customdata=np.stack([drawn, snr_db(relative)], axis=1),
        name=escape(name)
        if row == "layer"
        else text("figures.quant_error.series", run=run_letter(index), row=label),
        mode="lines+markers" if row == "layer" else "markers",
        line={"color": style.color, "dash": style.dash, "width": 2.5},
        marker={
            "symbol": symbol,
            "color": style.color,
            "size": 7 if row == "layer" else 10,
            "line": {"width": 0 if row == "layer" else 2},
        },
        hovertemplate=f"<b>{escape(name)}</b><br>{label}, {place}<br>{words}"
        + f"<extra>{text(f'figures.kind.{kind}')}</extra>",
    )
