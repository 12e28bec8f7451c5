"""Small codes packed into bytes along the last axis, and back.

Knows bits only; what the codes mean is the quantizer's business.
"""

from __future__ import annotations

import torch
from torch import Tensor


def packed_length(length: int, bits: int) -> int:
    """Bytes that ``length`` codes of ``bits`` bits take; the last byte may be part empty."""
    return -(-length * bits // 8)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Pack codes ``(..., N)`` in ``0 .. 2**bits - 1`` into ``(..., packed_length(N, bits))`` uint8.

    The first code of a byte takes its lowest bits. ``bits`` is 2, 4 or 8.
    """
    codes = codes.to(torch.uint8)
    per_byte = 8 // bits
    if per_byte == 1:
        return codes
    missing = -codes.shape[-1] % per_byte
    if missing:
        codes = torch.nn.functional.pad(codes, (0, missing))
    lanes = codes.reshape(*codes.shape[:-1], -1, per_byte)
    packed = lanes[..., 0].clone()
    for lane in range(1, per_byte):
        packed |= lanes[..., lane] << (bits * lane)
    return packed


def unpack(packed: Tensor, bits: int, length: int) -> Tensor:
    """Inverse of :func:`pack`: ``(..., length)`` uint8."""
    per_byte = 8 // bits
    if per_byte == 1:
        return packed
    mask = (1 << bits) - 1
    lanes = [(packed >> (bits * lane)) & mask for lane in range(per_byte)]
    return torch.stack(lanes, dim=-1).flatten(-2).narrow(-1, 0, length)
