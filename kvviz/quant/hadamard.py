"""A rotation before quantizing: the orthonormal Walsh-Hadamard transform along head_dim, undone on read.

It spreads one large channel over all channels (QuaRot, arXiv:2404.00456), and is its own inverse. Channels
are mixed in blocks of the largest power of two that divides head_dim. For keys as the cache holds them, after
rotary, ``q . k`` equals ``(H q) . (H k)``: the transform could be folded into the query. Before rotary
(``+prerotary``) it could not, so here it is always undone, and both combinations exist.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from kvviz.quant.base import Parts, Quantizer, at_least_fp32, narrow, wide_dtype
from kvviz.quant_config import hadamard_block


class Hadamard(Quantizer):
    """Any quantizer, of transformed values."""

    def __init__(self, inner: Quantizer) -> None:
        super().__init__(inner.config, head_dim=inner.head_dim, block_size=inner.block_size)
        self.inner = inner
        self._block = hadamard_block(inner.head_dim)

    @property
    def tokens_per_row(self) -> dict[str, int]:
        return self.inner.tokens_per_row

    def quantize(self, x: Tensor) -> Parts:
        return self.inner.quantize(self._transform(at_least_fp32(x)))

    def dequantize(self, parts: Parts, dtype: torch.dtype) -> Tensor:
        return narrow(self._transform(self.inner.dequantize(parts, wide_dtype(dtype))), dtype)

    def _transform(self, x: Tensor) -> Tensor:
        blocks = x.reshape(*x.shape[:-1], -1, self._block)
        return torch.matmul(blocks, hadamard_matrix(self._block, x.dtype, x.device)).reshape(x.shape)


@cache  # one constant for all layers and runs
def hadamard_matrix(
    size: int, dtype: torch.dtype = torch.float64, device: torch.device | None = None
) -> Tensor:
    """``(size, size)``, symmetric and orthonormal; ``size`` is a power of two."""
    two = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < size:
        matrix = torch.kron(matrix, two)
    return (matrix / math.sqrt(size)).to(device=device, dtype=dtype)
