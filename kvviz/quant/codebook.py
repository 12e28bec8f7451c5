"""Codes into a codebook of 4, 8 or 16 values that k-means found on a calibration text (KVQuant's nuq,
arXiv:2401.18079, here without its weights of sensitivity).

A group is stretched to 0..1 by its minimum and its range; the codebook holds the means of the clusters that
such values form, one codebook for a side of a layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvviz.quant.base import GroupedQuantizer, divide
from kvviz.quant.packing import pack, unpack
from kvviz.quant_config import QuantConfig

_MOST_ROUNDS = 100


def k_means(values: Tensor, count: int) -> Tensor:
    """``(count,)`` float64 in rising order: cluster means of ``values (N,)``, by Lloyd's rounds from two
    starts (equally full parts, equal steps), the better one kept. The same values always give the same."""
    ordered = values.double().flatten().sort().values
    middles = (torch.arange(count, dtype=torch.float64, device=ordered.device) + 0.5) / count
    steps = ordered[0] + (ordered[-1] - ordered[0]) * middles
    found = [_lloyd(ordered, start) for start in (ordered[(middles * len(ordered)).long()], steps)]
    return min(found, key=lambda pair: pair[0])[1]


def _lloyd(ordered: Tensor, means: Tensor) -> tuple[float, Tensor]:
    """Squared error, and the means that it belongs to."""
    total, squares = (torch.cat([x.new_zeros(1), x.cumsum(0)]) for x in (ordered, ordered.square()))
    ends = torch.tensor([0, len(ordered)], device=ordered.device)
    for _ in range(_MOST_ROUNDS):
        cuts = torch.searchsorted(ordered, (means[1:] + means[:-1]) / 2)
        edges = torch.cat([ends[:1], cuts, ends[1:]])
        sizes, sums = edges.diff(), total[edges].diff()
        moved = torch.where(sizes > 0, sums / sizes.clamp(min=1), means)  # an empty cluster stays
        if torch.equal(moved, means):
            break
        means = moved
    error = squares[edges].diff() - 2 * means * sums + sizes * means.square()
    return float(error.sum()), means


class CodeBook(GroupedQuantizer):
    """The nearest of the codebook's values; halfway between two, the lower one."""

    has_minimum = True

    def __init__(self, config: QuantConfig, *, levels: Tensor, **shape: Any) -> None:
        """``levels (2**bits,)`` in rising order, shares of a group's range."""
        super().__init__(config, **shape)
        self.levels = levels

    def choose(self, groups: Tensor) -> tuple[Tensor, Tensor | None]:
        low = groups.amin(self.grouping.reduced_axes, keepdim=True)
        return groups.amax(self.grouping.reduced_axes, keepdim=True) - low, low

    def encode(self, groups: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        assert minimum is not None
        levels = self.levels.to(groups)
        midpoints = (levels[1:] + levels[:-1]) / 2
        stretched = divide(groups - minimum, scale).contiguous()
        return torch.bucketize(stretched, midpoints, out_int32=True).to(torch.uint8)

    def decode(self, codes: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        assert minimum is not None
        return torch.addcmul(minimum, self.levels.to(scale)[codes.int()], scale)

    def reach(self, scale: Tensor, minimum: Tensor | None) -> tuple[Tensor, Tensor]:
        assert minimum is not None
        return minimum, minimum + scale

    def pack(self, codes: Tensor) -> Tensor:
        return pack(codes, self.config.bits)

    def unpack(self, packed: Tensor) -> Tensor:
        return unpack(packed, self.config.bits, self.head_dim)
