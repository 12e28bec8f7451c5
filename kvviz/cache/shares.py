"""Shares of sealed positions that are read as one part but lie in two tiers.

They are read together so that attention cuts the same tiles, and so computes the same numbers, as if nothing
were offloaded. Only who observes needs them apart; what is on the device is then read once more, for its
log-sum-exp alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kvviz.attention import RowRule, attend
from kvviz.cache.layer import LayerCache
from kvviz.cache.plan import SEALED_TIERS, PartPlan, StepPlan


def near_and_far(
    cache: LayerCache,
    step: StepPlan,
    reads: Sequence[PartPlan],
    part_lse: Sequence[Tensor],
    query: Tensor,
    scale: float,
) -> list[Tensor]:
    """Log-sum-exps ``(B, H, Q)`` of ``step.parts``, from those of ``reads``, which join the sealed."""
    near = next(part for part in step.parts if part.tier in SEALED_TIERS)
    rule = RowRule.of(near.low, near.high, query.device)
    near_lse = attend(query, cache.parts([near], [rule], query.dtype), scale).part_lse[0]
    split = []
    for plan, lse in zip(reads, part_lse, strict=True):
        split += [near_lse, _rest(lse, near_lse)] if plan.tier in SEALED_TIERS else [lse]
    return split


def _rest(whole: Tensor, part: Tensor) -> Tensor:
    """``log(exp(whole) - exp(part))``; ``-inf`` where nothing is left, rounding apart."""
    share = torch.exp(part - whole).nan_to_num(1.0).clamp(max=1.0)  # nothing seen at all: nothing is left
    return whole + torch.log1p(-share)
