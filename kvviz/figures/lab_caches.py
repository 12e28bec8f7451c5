"""What each cache holds by place, what its bits are made of, and what it costs beside what it takes.

Knows the marks that ``kvviz.lab.caches`` documents; measures nothing.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab_drawing import MARGIN, series_color
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.memory import PARTS
from kvviz.figures.theme import TIER_ORDER, bottom_legend, escape, frame, palette, rgba, tier_name, to_payload

MIB = 1 << 20
_ALPHA = {"exact": 0.9, "codes": 0.9, "metadata": 0.45, "outliers": 0.65}
_SEALED = ("quantized", "offloaded")
_ROW_HEIGHT, _AXIS_HEIGHT, _LEGEND_ROW_HEIGHT, _SCATTER_HEIGHT = 34, 58, 20, 380
#: ledger parts in the order in which bits are stacked
_BIT_PARTS = ("codes", "scales", "minima", "outliers", "outlier_places")


def panels(result: LabResult) -> list[LabPanel]:
    """Bytes, bits, loss over bytes; the bits only where something is sealed."""
    made = [LabPanel("bytes", to_payload(draw_bytes(result)))]
    if any(result.marks["sealed_numbers"]):
        made.append(LabPanel("bits", to_payload(draw_bits(result))))
    return [*made, LabPanel("loss", to_payload(draw_loss(result)))]


def byte_bands(result: LabResult) -> list[tuple[str, str, str, list[int]]]:
    """(location, tier, drawn part, bytes of each cache), empty bands left out."""
    found = []
    for location in ("device", "host"):
        for tier in TIER_ORDER:
            for part, names in PARTS.items():
                sizes = [
                    sum(tree.get(location, {}).get(tier, {}).get(name, 0) for name in names)
                    for tree in result.marks["bytes"]
                ]
                if any(sizes):
                    found.append((location, tier, part, sizes))
    return found


def bits_by_part(result: LabResult) -> dict[str, list[float]]:
    """Ledger part -> stored bits for each sealed number, one entry a cache that seals."""
    trees = [tree for tree, n in zip(result.marks["bytes"], result.marks["sealed_numbers"], strict=True) if n]
    numbers = [n for n in result.marks["sealed_numbers"] if n]
    parts = {
        name: [
            8 * sum(tree.get(place, {}).get(tier, {}).get(name, 0) for place in tree for tier in _SEALED) / n
            for tree, n in zip(trees, numbers, strict=True)
        ]
        for name in _BIT_PARTS
    }
    return {name: bits for name, bits in parts.items() if any(bits)}


def draw_bytes(result: LabResult) -> go.Figure:
    """A bar a cache, by location, tier and part; full precision in 16 bits as a line."""
    names = [escape(label) for label in result.marks["labels"]]
    figure = go.Figure()
    for location, tier, part, sizes in byte_bands(result):
        style = palette().tiers[tier]
        key = "band" if tier in _SEALED else "band_exact"
        name = text(
            f"figures.memory.{key}",
            tier=tier_name(tier), part=text(f"figures.part.{part}"),
            location=text(f"figures.location.{location}"),
        )  # fmt: skip
        figure.add_bar(
            x=[size / MIB for size in sizes], y=names, orientation="h", name=name, customdata=sizes,
            marker={
                "color": rgba(style.color, _ALPHA[part]),
                "line": {"width": 1, "color": style.color},
                "pattern": {"shape": "/" if location == "host" else "", "solidity": 0.25},
            },
            hovertemplate=f"<b>%{{y}}</b><br>{name}: "
            + text("lab.caches.figure.hover_bytes", bytes="%{customdata:,}")
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )  # fmt: skip
    line = result.marks["full_16bit_bytes"] / MIB
    figure.add_vline(x=line, line={"color": palette().reference, "dash": "dash", "width": 2})
    figure.add_annotation(
        text=text("lab.caches.figure.full_16bit"), x=line, y=1, yref="paper", yanchor="bottom",
        showarrow=False, font={"size": 12},
    )  # fmt: skip
    figure.update_xaxes(title_text=text("lab.caches.figure.axis_bytes"), rangemode="tozero", title_standoff=6)
    return _bars(figure, "lab_caches_bytes", names)


def draw_bits(result: LabResult) -> go.Figure:
    """What the bits of a sealed number are made of; the total at the bar's end."""
    sealing = zip(result.marks["labels"], result.marks["sealed_numbers"], strict=True)
    names = [escape(label) for label, n in sealing if n]
    parts = bits_by_part(result)
    figure = go.Figure()
    for place, (part, bits) in enumerate(parts.items()):
        name = text(f"lab.caches.part.{part}")
        figure.add_bar(
            x=bits, y=names, orientation="h", name=name, marker={"color": series_color(place)},
            hovertemplate=f"<b>%{{y}}</b><br>{name}: "
            + text("lab.caches.figure.hover_bits", bits="%{x:.3f}")
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )  # fmt: skip
    for i, name in enumerate(names):
        total = sum(bits[i] for bits in parts.values())
        figure.add_annotation(
            x=total, y=name, text=f"<b>{total:.2f}</b>", showarrow=False, xanchor="left", xshift=5
        )
    figure.update_xaxes(title_text=text("lab.caches.figure.axis_bits"), rangemode="tozero", title_standoff=6)
    return _bars(figure, "lab_caches_bits", names)


def _bars(figure: go.Figure, name: str, rows: list[str]) -> go.Figure:
    figure.update_yaxes(categoryorder="array", categoryarray=rows[::-1], showgrid=False)
    plot = _ROW_HEIGHT * max(3, len(rows))
    entries = _LEGEND_ROW_HEIGHT * len(figure.data)  # on a narrow page each has a row of its own
    height = plot + _AXIS_HEIGHT + entries + MARGIN["t"]
    legend = bottom_legend(-_AXIS_HEIGHT / plot) | {"maxheight": height}
    return frame(figure, name, height, barmode="stack", bargap=0.3, legend=legend, margin=MARGIN)


def draw_loss(result: LabResult) -> go.Figure:
    """KL over bytes, one point a cache; full precision loses nothing and has none."""
    main = result.tables["caches"]
    kl: list[Any] = main.column("kl")
    sizes: list[Any] = main.column("cache_bytes")
    points = [
        (label, size, loss)
        for label, size, loss in zip(result.marks["labels"], sizes, kl, strict=True)
        if loss > 0
    ]
    figure = go.Figure(
        go.Scatter(
            x=[size / MIB for _, size, _ in points], y=[loss for _, _, loss in points],
            mode="markers+text", text=[escape(label) for label, _, _ in points], textposition="top center",
            customdata=[label for label, _, _ in points], cliponaxis=False,
            marker={"size": 12, "color": series_color(0)},
            hovertemplate="<b>%{text}</b><br>"
            + text("lab.caches.figure.hover_loss", kl="%{y:.3g}", mib="%{x:.2f}")
            + f"<extra>{text('figures.kind.measured')}</extra>",
        )
    )  # fmt: skip
    figure.update_xaxes(title_text=text("lab.caches.figure.axis_bytes"), title_standoff=6)
    figure.update_yaxes(
        title_text=text("lab.caches.figure.axis_kl"), type="log", exponentformat="power", dtick=1
    )
    return frame(figure, "lab_caches_loss", _SCATTER_HEIGHT, showlegend=False, margin=MARGIN)
