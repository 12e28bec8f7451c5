"""What every quantizer offers: exact tensors in, named parts out, and back.

A part is a tensor with tokens on axis 2, so that a cache can append, cut and count it without knowing what
it holds. Quantizers are stateless: the same values give the same codes whenever they are sealed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from kvviz.quant.grouping import Grouping
from kvviz.quant_config import QuantConfig

#: part name ("codes", "scales", "minima", "outliers", "outlier_places", "exact") -> tensor with tokens (or
#: groups of them) on axis 2
Parts: TypeAlias = dict[str, Tensor]

_FP16_MAX = 65504.0


class Affine(NamedTuple):
    """Values are ``minimum + scale * (code - offset)``: codes of ``bits`` bits, and a scale (perhaps a
    minimum) for ``group_tokens`` consecutive tokens by ``group_channels`` channels."""

    bits: int
    offset: int
    group_tokens: int
    group_channels: int


class Quantizer(ABC):
    """One side (K or V) of sealed blocks."""

    def __init__(self, config: QuantConfig, *, head_dim: int, block_size: int) -> None:
        self.config = config
        self.head_dim = head_dim
        self.block_size = block_size

    @abstractmethod
    def quantize(self, x: Tensor) -> Parts:
        """``(B, H, T, D)`` with ``T`` a multiple of the block -> parts."""

    @abstractmethod
    def dequantize(self, parts: Parts, dtype: torch.dtype) -> Tensor:
        """Parts of ``T`` tokens -> ``(B, H, T, D)`` in ``dtype``."""

    @property
    @abstractmethod
    def tokens_per_row(self) -> dict[str, int]:
        """For each part, how many tokens one index of axis 2 covers."""

    @property
    def affine(self) -> Affine | None:
        """How values follow from the parts ``codes``, ``scales`` and ``minima``, where it is so simple that a
        product can be taken with the codes themselves."""
        return None


class GroupedQuantizer(Quantizer):
    """A quantizer with one scale (and maybe a minimum) for each group, stored in 16 or 32 bits.

    Subclasses choose the metadata, encode against it *as stored*, and decode; the steps are separate so that
    each can be tested alone.
    """

    has_minimum = False

    def __init__(self, config: QuantConfig, *, head_dim: int, block_size: int) -> None:
        super().__init__(config, head_dim=head_dim, block_size=block_size)
        self.grouping = Grouping.of(config, head_dim=head_dim, block_size=block_size)
        self.metadata_dtype = torch.float16 if config.metadata_bits == 16 else torch.float32

    @abstractmethod
    def choose(self, groups: Tensor) -> tuple[Tensor, Tensor | None]:
        """Scale and minimum of each group from the split view, axes kept."""

    @abstractmethod
    def encode(self, groups: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        """Split values -> split codes, uint8."""

    @abstractmethod
    def decode(self, codes: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        """Split codes -> split values in the dtype of ``scale``."""

    @abstractmethod
    def reach(self, scale: Tensor, minimum: Tensor | None) -> tuple[Tensor, Tensor]:
        """The least and the largest value that codes of these groups are meant for."""

    @abstractmethod
    def pack(self, codes: Tensor) -> Tensor:
        """``(B, H, T, D)`` codes -> stored bytes along the last axis."""

    @abstractmethod
    def unpack(self, packed: Tensor) -> Tensor:
        """Inverse of :meth:`pack`."""

    @property
    def tokens_per_row(self) -> dict[str, int]:
        rows = {"codes": 1, "scales": self.grouping.tokens}
        return rows | {"minima": self.grouping.tokens} if self.has_minimum else rows

    def quantize(self, x: Tensor) -> Parts:
        groups = self.grouping.split(at_least_fp32(x))
        scale, minimum = (self.as_stored(m) for m in self.choose(groups))
        assert scale is not None
        wide = groups.dtype
        codes = self.encode(groups, scale.to(wide), None if minimum is None else minimum.to(wide))
        parts = {"codes": self.pack(self.grouping.join(codes)), "scales": self.grouping.store(scale)}
        if minimum is not None:
            parts["minima"] = self.grouping.store(minimum)
        return parts

    def dequantize(self, parts: Parts, dtype: torch.dtype) -> Tensor:
        wide = wide_dtype(dtype)
        scale = self.grouping.load(parts["scales"]).to(wide)
        minimum = self.grouping.load(parts["minima"]).to(wide) if self.has_minimum else None
        codes = self.grouping.split(self.unpack(parts["codes"]))
        return narrow(self.grouping.join(self.decode(codes, scale, minimum)), dtype)

    def as_stored(self, metadata: Tensor | None) -> Tensor | None:
        """Metadata as it is kept: 16 bits, or 32."""
        if metadata is None:
            return None
        if self.metadata_dtype is torch.float16:
            # a finite scale that clips is a small error; an infinite one poisons the softmax
            metadata = metadata.clamp(-_FP16_MAX, _FP16_MAX)
        return metadata.to(self.metadata_dtype)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """What values of ``dtype`` are computed in: fp64 for fp64, else fp32."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def at_least_fp32(x: Tensor) -> Tensor:
    """``x`` in the dtype that quantizers compute in."""
    return x.to(wide_dtype(x.dtype))


def narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    """``x`` in ``dtype``; what fp16 cannot hold becomes its largest number, never an infinity."""
    return (x.clamp(-_FP16_MAX, _FP16_MAX) if dtype is torch.float16 else x).to(dtype)


def divide(x: Tensor, scale: Tensor) -> Tensor:
    """``x / scale``, and 0 where the stored scale is 0 (0/0 would spread NaN through the softmax)."""
    return x / torch.where(scale > 0, scale, torch.inf)
