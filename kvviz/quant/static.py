"""Scales that were chosen on another text, once, and a guard for what they did not foresee.

Static scales belong to a layer, as weights do, not to its sealed blocks: one for each group of channels (axis
token), channel (channel), head (head) or side (tensor), whatever the token. They are not stored with the
codes, so no ledger counts them; ``SideCalibration.n_bytes`` does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kvviz.quant.base import GroupedQuantizer, Parts, Quantizer, at_least_fp32, narrow, wide_dtype
from kvviz.quant.grouping import Grouping
from kvviz.quant.outliers import Outliers, place_dtype


@dataclass(frozen=True, slots=True, eq=False)
class SideCalibration:
    """What was learnt for one side of one layer.

    ``spec``: the quantizer that it was made for, its guard left out. ``scale`` and ``minimum`` (when static)
    are ``(1, H or 1, 1, 1, Dn, 1)`` in the dtype of metadata; ``levels (2**bits,)`` (when nuq) is a codebook.
    """

    spec: str
    scale: Tensor | None = None
    minimum: Tensor | None = None
    levels: Tensor | None = None

    @property
    def n_bytes(self) -> int:
        """What a layer's side keeps of it."""
        kept = [part for part in (self.scale, self.minimum, self.levels) if part is not None]
        return sum(part.numel() * part.element_size() for part in kept)


class Static(Quantizer):
    """A scheme with scales from a calibration: only codes are stored; what lies outside is clipped."""

    def __init__(self, scheme: GroupedQuantizer, calibration: SideCalibration) -> None:
        super().__init__(scheme.config, head_dim=scheme.head_dim, block_size=scheme.block_size)
        self.scheme, self.calibration = scheme, calibration

    @property
    def tokens_per_row(self) -> dict[str, int]:
        return {"codes": 1}

    def quantize(self, x: Tensor) -> Parts:
        scheme, wide = self.scheme, at_least_fp32(x)
        codes = scheme.encode(scheme.grouping.split(wide), *self.metadata(wide))
        return {"codes": scheme.pack(scheme.grouping.join(codes))}

    def dequantize(self, parts: Parts, dtype: torch.dtype) -> Tensor:
        scheme, codes = self.scheme, self.scheme.unpack(parts["codes"])
        probe = torch.empty(0, dtype=wide_dtype(dtype), device=codes.device)
        split = scheme.grouping.split(codes)
        return narrow(scheme.grouping.join(scheme.decode(split, *self.metadata(probe))), dtype)

    def excess(self, x: Tensor) -> Tensor:
        """How far ``(B, H, T, D)`` lie outside the calibrated range, same shape; not above 0 inside it."""
        groups = self.scheme.grouping.split(at_least_fp32(x))
        low, high = self.scheme.reach(*self.metadata(groups))
        return self.scheme.grouping.join(torch.maximum(low - groups, groups - high))

    def metadata(self, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """Scale and minimum of the split view, in the dtype of ``like``."""
        scale, minimum = self.calibration.scale, self.calibration.minimum
        assert scale is not None
        return scale.to(like), None if minimum is None else minimum.to(like)


class Guard(Outliers):
    """Static scales, with places for exact values: of each block of a head, those farthest outside.

    The number of places is fixed, so that blocks stay equal in size: values beyond it are clipped, and places
    that nothing outside needs hold the values nearest to the edge of the range.
    """

    def __init__(self, rest: Static, dtype: torch.dtype | None) -> None:
        super().__init__(rest, dtype)
        self.static = rest
        self.grouping = Grouping(rest.block_size, rest.head_dim, False)

    def quantize(self, x: Tensor) -> Parts:
        flat = self.grouping.flat(at_least_fp32(x))
        size = flat.shape[-1]
        excess = self.grouping.flat(self.static.excess(x))
        order = torch.sort(excess, dim=-1, descending=True, stable=True).indices
        places = order[..., : self.config.guarded_of(size)].sort(dim=-1).values
        parts = self.static.quantize(x)
        parts["outliers"] = narrow(flat.gather(-1, places), self.dtype or x.dtype)
        parts["outlier_places"] = places.to(place_dtype(size))
        return parts
