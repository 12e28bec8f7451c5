"""The largest magnitudes of each group kept apart in sparse form, so that they set no scale.

Values are stored in the dtype of the run, places inside the group in the smallest integer type; both are
parts, so the ledger counts them. The rest goes to any other quantizer, transform included. The idea of
KVQuant (arXiv:2401.18079), here for every axis.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvviz.quant.base import Parts, Quantizer, at_least_fp32, narrow, wide_dtype
from kvviz.quant.grouping import Grouping


class Outliers(Quantizer):
    """Any quantizer, without the values that would stretch its scales."""

    def __init__(self, rest: Quantizer, dtype: torch.dtype | None) -> None:
        """``dtype``: in which outliers are stored; None for that of the values themselves."""
        super().__init__(rest.config, head_dim=rest.head_dim, block_size=rest.block_size)
        self.rest = rest
        self.dtype = dtype
        self.grouping = Grouping.of(rest.config, head_dim=rest.head_dim, block_size=rest.block_size)

    @property
    def tokens_per_row(self) -> dict[str, int]:
        tokens = self.grouping.tokens
        return self.rest.tokens_per_row | {"outliers": tokens, "outlier_places": tokens}

    def quantize(self, x: Tensor) -> Parts:
        """Adds ``outliers`` and ``outlier_places``, each ``(B, H or 1, Tn, Dn, k)``, places rising."""
        flat = self.grouping.flat(at_least_fp32(x))
        size = flat.shape[-1]
        # stable: of equal magnitudes the first is taken, however the tokens were fed
        order = torch.sort(flat.abs(), dim=-1, descending=True, stable=True).indices
        places = order[..., : self.config.outliers_of(size)].sort(dim=-1).values
        # the smallest magnitude stands in: unlike a zero it never widens the range of a shifted group
        filled = flat.scatter(-1, places, flat.gather(-1, order[..., -1:]).expand(places.shape))
        parts = self.rest.quantize(self.grouping.unflat(filled, x.shape[1]))
        parts["outliers"] = narrow(flat.gather(-1, places), self.dtype or x.dtype)
        parts["outlier_places"] = places.to(place_dtype(size))
        return parts

    def dequantize(self, parts: Parts, dtype: torch.dtype) -> Tensor:
        wide = wide_dtype(dtype)
        rest = self.rest.dequantize(parts, wide)
        places = parts["outlier_places"].to(torch.int64)
        flat = self.grouping.flat(rest).scatter(-1, places, parts["outliers"].to(wide))
        return narrow(self.grouping.unflat(flat, rest.shape[1]), dtype)


def place_dtype(size: int) -> torch.dtype:
    """The smallest integer type for a place in a group of ``size`` values."""
    if size <= 1 << 8:
        return torch.uint8
    return torch.uint16 if size <= 1 << 16 else torch.int32
