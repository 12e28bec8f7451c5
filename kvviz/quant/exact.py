"""No quantizer: a side of a sealed block kept as it is, so that it can still be offloaded."""

from __future__ import annotations

import torch
from torch import Tensor

from kvviz.quant.base import Parts, Quantizer


class Exact(Quantizer):
    """Stores values unchanged."""

    def quantize(self, x: Tensor) -> Parts:
        return {"exact": x}

    def dequantize(self, parts: Parts, dtype: torch.dtype) -> Tensor:
        return parts["exact"].to(dtype)

    @property
    def tokens_per_row(self) -> dict[str, int]:
        return {"exact": 1}
