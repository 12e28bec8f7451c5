"""The share of attention on the sinks, the window and the middle: by layer and head, and over steps.

Knows the masses that the merge of the parts gave; recomputes no attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvviz.catalogue import text
from kvviz.events import MASS_TIERS, Tier
from kvviz.figures.theme import (
    bottom_legend,
    empty_figure,
    frame,
    linear_scale,
    palette,
    record_state,
    tier_name,
    to_payload,
)
from kvviz.record import RunRecord

Group = Literal["sink", "window", "middle"]
GROUPS: dict[str, tuple[Tier, ...]] = {
    "sink": (Tier.SINK,),
    "window": (Tier.WINDOW,),
    "middle": (Tier.EXACT, Tier.QUANTIZED, Tier.OFFLOADED),
}
STEPS_HEIGHT = 320
_MINIMUM_HEIGHT = 300
_MOST_MARKERS = 12


@dataclass(frozen=True, slots=True)
class TierMass:
    """Shares of one step: ``share`` ``(L, H)`` of the group, ``masses`` ``(L, H, 5)`` of ``MASS_TIERS``."""

    step: int
    group: str
    share: NDArray[np.float32]
    masses: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TierMassSummary:
    """Mean over layers and heads: ``mean`` is ``(S, 5)`` of ``MASS_TIERS``; ``tokens`` ``(S,)`` seen."""

    tokens: NDArray[np.int64]
    mean: NDArray[np.float64]


def tier_mass_data(record: RunRecord, group: Group, step: int | None = None) -> TierMass | None:
    """The masses of ``step`` (None: the latest, negative: from the end); None when there is no such step."""
    if step is None:
        step = len(record.tier_mass) - 1
    elif step < 0:
        step += len(record.tier_mass)
    if not 0 <= step < len(record.tier_mass):
        return None
    masses = record.tier_mass[step]
    places = [MASS_TIERS.index(tier) for tier in GROUPS[group]]
    return TierMass(step, group, masses[..., places].sum(-1, dtype=np.float32), masses)


def tier_mass_summary(record: RunRecord) -> TierMassSummary:
    """Mean mass of every tier at every step; empty arrays before the first. Steps that a stored record left
    out are not there."""
    tokens = np.asarray([m.tokens for m in record.memory[: len(record.tier_mass)]], dtype=np.int64)
    if not record.tier_mass:
        return TierMassSummary(tokens, np.zeros((0, len(MASS_TIERS))))
    means = np.stack([mass.mean((0, 1), dtype=np.float64) for mass in record.tier_mass])
    kept = ~np.isnan(means).any(1)
    return TierMassSummary(tokens[kept], means[kept])


def tier_mass_figure(record: RunRecord, group: Group = "sink", step: int | None = None) -> dict[str, Any]:
    """Layer x head heatmap of one group's share, as a JSON-ready payload. A click gives x: head, y: layer."""
    data = tier_mass_data(record, group, step)
    if data is None:
        return to_payload(empty_figure("tier_mass", text(record_state([record])), _MINIMUM_HEIGHT))
    if np.isnan(data.share).any():
        return to_payload(empty_figure("tier_mass", text("figures.step_left_out"), _MINIMUM_HEIGHT))
    return to_payload(draw_tier_mass(data, record.kind))


def draw_tier_mass(data: TierMass, kind: str = "measured") -> go.Figure:
    """The heatmap; its colour range is always 0..1, so that steps, groups and runs can be compared."""
    n_layers, n_heads = data.share.shape
    rows = [f"{tier_name(tier)} %{{customdata[{i}]:.1%}}" for i, tier in enumerate(MASS_TIERS)]
    head = text("figures.hover.layer_head", layer="%{y}", head="%{x}")
    figure = go.Figure(
        go.Heatmap(
            z=data.share,
            x=np.arange(n_heads),
            y=np.arange(n_layers),
            customdata=data.masses,
            zmin=0,
            zmax=1,
            colorscale=linear_scale(),
            xgap=1,
            ygap=1,
            hovertemplate=f"<b>{head}</b><br>"
            + "<br>".join(rows)
            + f"<extra>{text(f'figures.kind.{kind}')}</extra>",
            colorbar={
                "tickformat": ".0%",
                "thickness": 14,
                "outlinewidth": 0,
                "tickvals": [0, 0.25, 0.5, 0.75, 1],
                "title": {"text": text(f"figures.tier_mass.scale_{data.group}"), "side": "right"},
            },
        )
    )
    figure.update_xaxes(
        title_text=text("figures.axis.head"), dtick=_tick(n_heads, 16), showgrid=False, zeroline=False
    )
    figure.update_yaxes(
        title_text=text("figures.axis.layer"),
        dtick=_tick(n_layers, 16),
        autorange="reversed",
        showgrid=False,
        zeroline=False,
    )
    height = max(_MINIMUM_HEIGHT, min(620, 90 + 14 * n_layers))
    return frame(figure, "tier_mass", height, margin={"l": 8, "r": 8, "t": 10, "b": 8})


def tier_mass_over_steps_figure(record: RunRecord) -> dict[str, Any]:
    """Mean mass of every tier over tokens seen, stacked to 100 %, as a JSON-ready payload."""
    data = tier_mass_summary(record)
    if not len(data.tokens):
        return to_payload(empty_figure("tier_mass_steps", text(record_state([record])), STEPS_HEIGHT))
    return to_payload(draw_tier_mass_over_steps(data, record.kind))


def draw_tier_mass_over_steps(data: TierMassSummary, kind: str = "measured") -> go.Figure:
    """One line a tier that ever had mass, with its own marker shape; hovers say ``kind``."""
    figure = go.Figure()
    for i, tier in enumerate(MASS_TIERS):
        if not data.mean[:, i].any():
            continue
        style = palette().tiers[tier.value]
        figure.add_scatter(
            x=data.tokens,
            y=data.mean[:, i],
            name=tier_name(tier),
            mode="lines+markers",
            line={"color": style.color, "width": 2.5},
            marker={"symbol": style.shape, "color": style.color, "size": 9, "maxdisplayed": _MOST_MARKERS},
            hovertemplate=f"{tier_name(tier)} %{{y:.1%}}<br>"
            + text("figures.hover.at_tokens", n="%{x}")
            + f"<extra>{text(f'figures.kind.{kind}')}</extra>",
        )
    figure.update_xaxes(title_text=text("figures.axis.tokens_seen"), title_standoff=6)
    figure.update_yaxes(title_text=text("figures.axis.mean_share"), range=[0, 1], tickformat=".0%")
    margin = {"l": 8, "r": 8, "t": 10, "b": 8}
    return frame(figure, "tier_mass_steps", STEPS_HEIGHT, legend=bottom_legend(-0.25), margin=margin)


def _tick(n: int, most: int) -> int:
    return max(1, -(-n // most))
