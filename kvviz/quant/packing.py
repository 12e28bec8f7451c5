"""Small codes packed into bytes along the last axis, and back.

Codes form one stream of bits, the first code in the lowest bits of the first byte: 2 and 4 bits never cross a
byte, and 8 codes of 3 bits fill 3 bytes. Knows bits only; what the codes mean is the quantizer's business.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor
from torch.nn.functional import pad

_TRIPLE_CODES, _TRIPLE_BYTES = 8, 3  # 8 codes of 3 bits are one 24-bit word


def packed_length(length: int, bits: int) -> int:
    """Bytes that ``length`` codes of ``bits`` bits take; the last byte may be part empty."""
    return -(-length * bits // 8)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Pack codes ``(..., N)`` in ``0 .. 2**bits - 1`` into ``(..., packed_length(N, bits))`` uint8.

    ``bits`` is 2, 3, 4 or 8; unused bits of the last byte are 0.
    """
    codes = codes.to(torch.uint8)
    if bits == 8:
        return codes
    if bits == 3:
        return _pack_triples(codes)
    per_byte = 8 // bits
    lanes = _lanes(codes, per_byte)
    if bits == 4 and sys.byteorder == "little" and lanes.is_contiguous():
        pairs = lanes.view(torch.int16)[..., 0]  # both codes at once: the second lies 8 bits higher
        return (pairs | (pairs >> 4)).to(torch.uint8)
    packed = lanes[..., 0].clone()
    for lane in range(1, per_byte):
        packed |= lanes[..., lane] << (bits * lane)
    return packed


def unpack(packed: Tensor, bits: int, length: int) -> Tensor:
    """Inverse of :func:`pack`: ``(..., length)`` uint8."""
    if bits == 8:
        return packed
    if bits == 3:
        return _unpack_triples(packed, length)
    mask = (1 << bits) - 1
    lanes = [(packed >> (bits * lane)) & mask for lane in range(8 // bits)]
    return torch.stack(lanes, dim=-1).flatten(-2).narrow(-1, 0, length)


def _lanes(x: Tensor, count: int) -> Tensor:
    """``(..., N)`` -> ``(..., ceil(N / count), count)``, zeros at the end."""
    if x.shape[-1] % count:
        x = pad(x, (0, -x.shape[-1] % count))
    return x.reshape(*x.shape[:-1], -1, count)


def _pack_triples(codes: Tensor) -> Tensor:
    length = codes.shape[-1]
    lanes = _lanes(codes, _TRIPLE_CODES).to(torch.int32)
    word = lanes[..., 0].clone()
    for lane in range(1, _TRIPLE_CODES):
        word |= lanes[..., lane] << (3 * lane)
    split = torch.stack([(word >> (8 * byte)) & 0xFF for byte in range(_TRIPLE_BYTES)], dim=-1)
    return split.to(torch.uint8).flatten(-2).narrow(-1, 0, packed_length(length, 3)).contiguous()


def _unpack_triples(packed: Tensor, length: int) -> Tensor:
    split = _lanes(packed, _TRIPLE_BYTES).to(torch.int32)
    word = split[..., 0] | (split[..., 1] << 8) | (split[..., 2] << 16)
    lanes = [(word >> (3 * lane)) & 0x7 for lane in range(_TRIPLE_CODES)]
    return torch.stack(lanes, dim=-1).to(torch.uint8).flatten(-2).narrow(-1, 0, length)
