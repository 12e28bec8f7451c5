"""Eight-bit floating point, e4m3, with a scale that puts the group's largest magnitude at 448.

Format: arXiv:2209.05433. Never a bare cast: without a scale, keys above 448 become NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvviz.quant.base import GroupedQuantizer, divide

_E4M3_MAX = 448.0


class Fp8(GroupedQuantizer):
    """e4m3 codes, one byte each, rounded half to even."""

    def choose(self, groups: Tensor) -> tuple[Tensor, Tensor | None]:
        return groups.abs().amax(self.grouping.reduced_axes, keepdim=True) / _E4M3_MAX, None

    def encode(self, groups: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        return (
            divide(groups, scale)
            .clamp(-_E4M3_MAX, _E4M3_MAX)
            .float()
            .to(torch.float8_e4m3fn)
            .view(torch.uint8)
        )

    def decode(self, codes: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        return codes.view(torch.float8_e4m3fn).to(scale.dtype) * scale

    def reach(self, scale: Tensor, minimum: Tensor | None) -> tuple[Tensor, Tensor]:
        return -scale * _E4M3_MAX, scale * _E4M3_MAX

    def pack(self, codes: Tensor) -> Tensor:
        return codes

    def unpack(self, packed: Tensor) -> Tensor:
        return packed
