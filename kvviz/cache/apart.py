"""Compute where it lives: the host reads its part of the attention, and only output and log-sum-exp travel.

The merge is that of :mod:`kvviz.attention`: exact, whatever was read where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from torch import Tensor

from kvviz.attention import Attention, Part, RowRule, attend
from kvviz.cache.layer import SealedPart
from kvviz.cache.plan import PartPlan

HOST = torch.device("cpu")


def attend_apart(
    query: Tensor,
    parts: Sequence[Part],
    plans: Sequence[PartPlan],
    far_at: int,
    scale: float,
    *,
    keep_scores: bool,
    timing: Callable[[int], AbstractContextManager[None]],
) -> Attention:
    """Attention of ``query (B, H, Q, D)`` over ``parts``, that at ``far_at`` read by the host. The device's
    part is only begun when the host begins, so that both go on at once. ``timing`` surrounds the host's part
    and is told the bytes that are handed over."""
    wide = query.to(torch.float64 if query.dtype is torch.float64 else torch.float32)
    asked = wide.to(HOST)  # before the device has anything else to do
    near = attend(
        wide, [part for at, part in enumerate(parts) if at != far_at], scale, keep_scores=keep_scores
    )
    part, plan = parts[far_at], plans[far_at]
    assert isinstance(part, SealedPart)
    here = replace(part, rows=RowRule.of(plan.low, plan.high, HOST), device=HOST)
    handed = 2 * asked.nbytes + asked[..., 0].numel() * asked.element_size()  # query; output and lse
    with timing(handed):
        far = attend(asked, [here], scale, keep_scores=keep_scores)
        unseen = (far.lse == float("-inf")).unsqueeze(-1)  # rows that see nothing of it: 0 / 0
        output, lse = (x.to(query.device) for x in (far.output.masked_fill(unseen, 0), far.lse))
    total = torch.logaddexp(near.lse, lse)
    merged = near.output * torch.exp(near.lse - total).unsqueeze(-1)
    merged = merged + output * torch.exp(lse - total).unsqueeze(-1)
    part_lse = [*near.part_lse[:far_at], lse, *near.part_lse[far_at:]]
    far_kept = [type(tile)(tile[0], *(x.to(query.device) for x in tile[1:])) for tile in far.kept]
    return Attention(merged.to(query.dtype), total, part_lse, [*near.kept, *far_kept])
