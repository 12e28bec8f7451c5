"""Uniform integer codes: absmax (symmetric) and minmax (with a minimum), 8, 4, 3 or 2 bits.

absmax: ``scale = max|x| / (2**(b-1) - 1)``, codes in ``±(2**(b-1) - 1)``, stored shifted to be unsigned.
minmax: ``scale = (max - min) / (2**b - 1)``, codes in ``0 .. 2**b - 1`` (KIVI, arXiv:2402.02750, eq. 1).
Rounding is half to even. A group whose stored scale is zero has all codes zero: constants come back right.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvviz.quant.base import Affine, GroupedQuantizer, divide
from kvviz.quant.packing import pack, unpack


class _Integer(GroupedQuantizer):
    def pack(self, codes: Tensor) -> Tensor:
        return pack(codes, self.config.bits)

    def unpack(self, packed: Tensor) -> Tensor:
        return unpack(packed, self.config.bits, self.head_dim)

    @property
    def affine(self) -> Affine:
        grouping, offset = self.grouping, 0 if self.has_minimum else (1 << (self.config.bits - 1)) - 1
        return Affine(self.config.bits, offset, grouping.tokens, grouping.channels)


def _bytes(codes: Tensor) -> Tensor:
    """Whole numbers in 0 .. 255 as uint8; by way of int16, for which torch has vector instructions."""
    return codes.to(torch.int16).to(torch.uint8)


class AbsMax(_Integer):
    """Symmetric around zero; zero is always representable."""

    @property
    def _limit(self) -> int:
        return (1 << (self.config.bits - 1)) - 1

    def choose(self, groups: Tensor) -> tuple[Tensor, Tensor | None]:
        return groups.abs().amax(self.grouping.reduced_axes, keepdim=True) / self._limit, None

    def encode(self, groups: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        codes = divide(groups, scale).round_().clamp_(-self._limit, self._limit)
        return _bytes(codes.add_(self._limit))

    def decode(self, codes: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        return codes.to(scale.dtype).sub_(self._limit).mul_(scale)

    def reach(self, scale: Tensor, minimum: Tensor | None) -> tuple[Tensor, Tensor]:
        return -scale * self._limit, scale * self._limit


class MinMax(_Integer):
    """Spans the group's range; a shifted channel costs no resolution."""

    has_minimum = True

    @property
    def _limit(self) -> int:
        return (1 << self.config.bits) - 1

    def choose(self, groups: Tensor) -> tuple[Tensor, Tensor | None]:
        low = groups.amin(self.grouping.reduced_axes, keepdim=True)
        high = groups.amax(self.grouping.reduced_axes, keepdim=True)
        return (high - low) / self._limit, low

    def encode(self, groups: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        assert minimum is not None
        return _bytes(divide(groups - minimum, scale).round_().clamp_(0, self._limit))

    def decode(self, codes: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        assert minimum is not None
        return torch.addcmul(minimum, codes.to(scale.dtype), scale)

    def reach(self, scale: Tensor, minimum: Tensor | None) -> tuple[Tensor, Tensor]:
        assert minimum is not None
        return minimum, minimum + scale * self._limit
