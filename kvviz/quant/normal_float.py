"""NormalFloat: 16 values that lie as dense as the numbers of a normal distribution, and an exact zero.

Published in arXiv:2305.14314 (section 3; values in its appendix E). They are computed here as its authors
did: quantiles of the normal distribution at evenly spaced probabilities, 8 above zero and 7 below it, and
zero itself, all divided by the largest so that both ends are exactly 1.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import NormalDist

import torch
from torch import Tensor

from kvviz.quant.base import GroupedQuantizer, divide
from kvviz.quant.packing import pack, unpack

_BITS = 4
#: The outermost probability: 1 - (1/32 + 1/30) / 2, the mean of what 8 and 7 steps would leave out, in the
#: seven digits that its authors used.
_OUTERMOST = 0.9677083


def normal_float_values() -> list[float]:
    """The 16 values in rising order, from -1 over an exact 0 to 1."""
    above, below = _quantiles(8), _quantiles(7)
    largest = above[0]
    return sorted([*(q / largest for q in above), 0.0, *(-q / largest for q in below)])


def _quantiles(count: int) -> list[float]:
    """Normal quantiles at ``count`` even steps from the outermost down to the median, which is left out."""
    step = (_OUTERMOST - 0.5) / count
    return [NormalDist().inv_cdf(_OUTERMOST - i * step) for i in range(count)]


_VALUES = normal_float_values()
_MIDPOINTS = [(low + high) / 2 for low, high in pairwise(_VALUES)]


class NormalFloat4(GroupedQuantizer):
    """4-bit codes of the nearest value; halfway between two, the lower one. Scale: the largest magnitude."""

    def choose(self, groups: Tensor) -> tuple[Tensor, Tensor | None]:
        return groups.abs().amax(self.grouping.reduced_axes, keepdim=True), None

    def encode(self, groups: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        midpoints = torch.tensor(_MIDPOINTS, dtype=groups.dtype, device=groups.device)
        return torch.bucketize(divide(groups, scale).contiguous(), midpoints, out_int32=True).to(torch.uint8)

    def decode(self, codes: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        values = torch.tensor(_VALUES, dtype=scale.dtype, device=scale.device)
        return values[codes.int()] * scale

    def reach(self, scale: Tensor, minimum: Tensor | None) -> tuple[Tensor, Tensor]:
        return -scale, scale

    def pack(self, codes: Tensor) -> Tensor:
        return pack(codes, _BITS)

    def unpack(self, packed: Tensor) -> Tensor:
        return unpack(packed, _BITS, self.head_dim)
