"""Memory over tokens by tier, part and location, against the full-precision formula.

Knows the ledger's numbers as the record holds them; counts no bytes itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from kvviz.catalogue import text
from kvviz.events import ByteTree, ModelFacts, Tier
from kvviz.figures.theme import (
    TIER_ORDER,
    add_note,
    bottom_legend,
    empty_figure,
    frame,
    palette,
    record_state,
    rgba,
    run_name,
    tier_name,
    to_payload,
    wrapped,
)
from kvviz.offload_config import Place
from kvviz.record import RunRecord

HEIGHT = 420
_SCALES = ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)
#: Drawn part -> ledger parts it sums.
PARTS = {
    "codes": ("codes",),
    "metadata": ("scales", "minima"),
    "outliers": ("outliers", "outlier_places"),
    "exact": ("exact",),
}
_ALPHA = {"codes": 0.9, "metadata": 0.45, "outliers": 0.65, "exact": 0.9}
_LOCATIONS = tuple(place.value for place in Place)
#: location -> hatching: what is not on the device
_HATCH = {Place.HOST.value: "/", Place.DISK.value: "x"}
_SEALED = (Tier.QUANTIZED, Tier.OFFLOADED)


@dataclass(frozen=True, slots=True)
class MemoryBand:
    """One stacked area: used bytes ``(S,)`` int64 of one tier, part and location over the snapshots."""

    tier: str
    part: str
    location: str
    used: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Measured bands of one run over tokens seen ``(S,)``, and the two computed lines ``(S,)`` in bytes."""

    name: str
    tokens: NDArray[np.int64]
    bands: tuple[MemoryBand, ...]
    full_16bit: NDArray[np.float64]
    full_own: NDArray[np.float64]
    dtype: str
    dtype_bytes: int
    kind: str = "measured"  # of the bands; ``stored`` where the record was read from a file


@dataclass(frozen=True, slots=True)
class MemoryBar:
    """The latest snapshot of one run. Bytes are used bytes; ratios are formula bytes / used bytes."""

    name: str
    tokens: int
    by_tier: dict[str, dict[str, dict[str, int]]]  # tier -> part -> location -> bytes
    used_bytes: int
    effective_bits: float | None
    cache_bits: float | None
    full_16bit_bytes: float
    full_own_bytes: float
    ratio_16bit: float | None
    ratio_own: float | None


def full_precision_bytes(model: ModelFacts, tokens: int, bytes_per_number: float) -> float:
    """``2 * L * H_kv * D * T * bytes``: K and V of ``tokens`` tokens, nothing evicted, nothing quantized."""
    return model.kv_bytes_per_token(bytes_per_number) * tokens


def memory_curve(index: int, record: RunRecord) -> MemoryCurve | None:
    """The memory of one run over its steps; None when nothing was measured yet."""
    if not record.memory or record.model is None:
        return None
    bands = []
    for tier in Tier:
        for part, ledger_parts in PARTS.items():
            for location in _LOCATIONS:
                used = np.asarray(
                    [_used(m.used, location, tier.value, ledger_parts) for m in record.memory], dtype=np.int64
                )
                if used.any():
                    bands.append(MemoryBand(tier.value, part, location, used))
    tokens = np.asarray([m.tokens for m in record.memory], dtype=np.int64)
    model = record.model
    return MemoryCurve(
        name=run_name(index, record),
        tokens=tokens,
        bands=tuple(bands),
        full_16bit=_line(tokens, model, 2),
        full_own=_line(tokens, model, model.dtype_bytes),
        dtype=model.dtype,
        dtype_bytes=model.dtype_bytes,
        kind=record.kind,
    )


def _line(tokens: NDArray[np.int64], model: ModelFacts, bytes_per_number: float) -> NDArray[np.float64]:
    return tokens.astype(np.float64) * np.float64(model.kv_bytes_per_token(bytes_per_number))


def memory_bar(index: int, record: RunRecord) -> MemoryBar | None:
    """The latest snapshot of one run; None when nothing was measured yet."""
    if not record.memory or record.model is None:
        return None
    latest = record.memory[-1]
    by_tier: dict[str, dict[str, dict[str, int]]] = {}
    for location, tiers in latest.used.items():
        for tier, parts in tiers.items():
            for part, n_bytes in parts.items():
                by_tier.setdefault(tier, {}).setdefault(part, {})[location] = n_bytes
    used = latest.used_bytes
    full_16bit = full_precision_bytes(record.model, latest.tokens, 2)
    full_own = full_precision_bytes(record.model, latest.tokens, record.model.dtype_bytes)
    return MemoryBar(
        name=run_name(index, record),
        tokens=latest.tokens,
        by_tier=by_tier,
        used_bytes=used,
        effective_bits=latest.effective_bits,
        cache_bits=latest.cache_bits,
        full_16bit_bytes=full_16bit,
        full_own_bytes=full_own,
        ratio_16bit=full_16bit / used if used else None,
        ratio_own=full_own / used if used else None,
    )


def memory_bars(records: Sequence[RunRecord]) -> list[MemoryBar]:
    """The latest snapshot of every run that has one."""
    bars = (memory_bar(i, record) for i, record in enumerate(records))
    return [bar for bar in bars if bar is not None]


def memory_figure(records: Sequence[RunRecord]) -> dict[str, Any]:
    """Live memory of the runs side by side on one scale, as a JSON-ready payload."""
    curves = [memory_curve(i, record) for i, record in enumerate(records)]
    if not any(curves):
        return to_payload(empty_figure("memory", text(record_state(records)), HEIGHT))
    return to_payload(draw_memory(curves, [run_name(i, r) for i, r in enumerate(records)]))


def draw_memory(curves: Sequence[MemoryCurve | None], names: Sequence[str]) -> go.Figure:
    """One subplot a run; a run without a snapshot keeps an empty subplot with a sentence."""
    titles = [wrapped(name, 70 // len(names)) for name in names]
    figure = make_subplots(
        1, len(names), shared_xaxes="all", shared_yaxes=True, horizontal_spacing=0.05,
        subplot_titles=titles,
    )  # fmt: skip
    known = [curve for curve in curves if curve is not None]
    unit, size = scale_of(max(float(max(c.full_16bit.max(), c.full_own.max())) for c in known))
    shown: set[str] = set()
    for column, curve in enumerate(curves, start=1):
        if curve is None:
            figure.add_scatter(x=[], y=[], showlegend=False, row=1, col=column)  # so that the axes are drawn
            add_note(figure, column, wrapped(text("figures.empty.none"), 20), x=0.5, y=0.5)
            continue
        for trace in [*(_area(curve, band, size) for band in curve.bands), *_lines(curve, size)]:
            trace.showlegend = trace.legendgroup not in shown
            shown.add(trace.legendgroup)
            figure.add_trace(trace, row=1, col=column)
    shortest = max(len(curve.tokens) for curve in known) < 6
    figure.update_xaxes(
        title_text=text("figures.axis.tokens_seen"), nticks=5, title_standoff=6, dtick=1 if shortest else None
    )
    kinds = dict.fromkeys(text(f"figures.kind.{curve.kind}") for curve in known)
    axis = text("figures.memory.axis", unit=unit, kind=" / ".join(kinds))
    figure.update_yaxes(title_text=axis, rangemode="tozero", row=1, col=1)
    top_legend = {
        "yref": "container",
        "y": 1,
        "yanchor": "top",
        "x": 0,
        "xanchor": "left",
        "font": {"size": 12},
    }
    margin = {"l": 8, "r": 8, "t": 80, "b": 8}
    return frame(figure, "memory", HEIGHT, legend=bottom_legend(-0.24), legend2=top_legend, margin=margin)


def _area(curve: MemoryCurve, band: MemoryBand, size: int) -> go.Scatter:
    style = palette().tiers[band.tier]
    tier, part = tier_name(band.tier), text(f"figures.part.{band.part}")
    location = text(f"figures.location.{band.location}")
    key = "band" if band.tier in _SEALED else "band_exact"
    name = text(f"figures.memory.{key}", tier=tier, part=part, location=location)
    x, used, customdata = _drawn(curve, band.used)
    color = rgba(style.color, _ALPHA[band.part])
    return go.Scatter(
        x=x,
        y=used / size,
        customdata=customdata,
        name=name,
        legendgroup=f"{band.tier}.{band.part}.{band.location}",
        stackgroup="used",
        legendrank=1000 + TIER_ORDER.index(band.tier),
        mode="lines",
        line={"width": 1, "color": style.color},
        fillcolor=color,
        fillpattern={
            "shape": _HATCH[band.location],
            "fgcolor": "rgba(255,255,255,0.55)",
            "bgcolor": color,
            "size": 7,
            "solidity": 0.25,
        }
        if band.location in _HATCH
        else None,
        hovertemplate=_hover(name, curve.kind),
    )


def _lines(curve: MemoryCurve, size: int) -> list[go.Scatter]:
    lines = [("16", curve.full_16bit, text("figures.memory.full_16bit"), "dash")]
    if curve.dtype_bytes != 2:
        name = text("figures.memory.full_own", dtype=curve.dtype, bytes=curve.dtype_bytes)
        lines.append((curve.dtype, curve.full_own, name, "dot"))
    return [
        go.Scatter(
            x=_drawn(curve, values)[0],
            y=_drawn(curve, values)[1] / size,
            customdata=_drawn(curve, values)[2],
            name=name,
            legendgroup=f"full.{key}",
            legend="legend2",
            mode="lines",
            line={"color": palette().reference, "dash": dash, "width": 2.5},
            hovertemplate=_hover(name, "computed"),
        )
        for key, values, name, dash in lines
    ]


def _hover(name: str, kind: str) -> str:
    words = text("figures.memory.hover", bytes="%{customdata[1]:,.0f}", n="%{customdata[0]}")
    return f"{name}<br>{words}<extra>{text(f'figures.kind.{kind}')}</extra>"


def _drawn(
    curve: MemoryCurve, values: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[np.float64]]:
    """x, bytes, and tokens with bytes ``(S, 2)`` for hover. A single snapshot is drawn one token wide."""
    tokens = curve.tokens.astype(np.float64)
    hover = np.stack((tokens, values.astype(np.float64)), axis=1)
    if len(tokens) > 1:
        return tokens, values, hover
    return np.concatenate((tokens - 0.5, tokens + 0.5)), np.repeat(values, 2), np.repeat(hover, 2, axis=0)


def _used(tree: ByteTree, location: str, tier: str, parts: Sequence[str]) -> int:
    stored = tree.get(location, {}).get(tier, {})
    return sum(stored.get(part, 0) for part in parts)


def scale_of(n_bytes: float) -> tuple[str, int]:
    return next((unit for unit in _SCALES if n_bytes >= unit[1]), _SCALES[-1])
