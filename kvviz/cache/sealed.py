"""Sealed blocks of one layer: quantized once on the way in, dequantized tile by tile on the way out.

Knows a quantizer by its interface only. A tile is the most that is ever dequantized at a time, so no step
builds a full-precision copy of the sealed tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kvviz.attention import Tile
from kvviz.cache.buffer import TokenBuffer
from kvviz.quant import Parts, Quantizer

TILE_TOKENS = 1024


class SealedSide:
    """K or V of all sealed blocks of a layer."""

    def __init__(self, quantizer: Quantizer, location: torch.device, *, pinned: bool) -> None:
        self.quantizer = quantizer
        self.buffers = {part: TokenBuffer(location, pinned=pinned) for part in quantizer.tokens_per_row}

    def append(self, parts: Parts) -> None:
        """Store the parts of newly sealed blocks, where this side lives."""
        for part, tensor in parts.items():
            self.buffers[part].append(tensor)

    def read(self, start: int, stop: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Restored ``(B, H_kv, stop - start, D)``; the edges are whole blocks."""
        parts = {}
        for part, rows in self.quantizer.tokens_per_row.items():
            parts[part] = self.buffers[part].view(start // rows, stop // rows).to(device)
        return self.quantizer.dequantize(parts, dtype)

    def parts(self) -> Parts:
        """Everything stored, for audits and tests; shares storage."""
        return {part: buffer.view() for part, buffer in self.buffers.items() if len(buffer)}


class SealedBlocks:
    """The sealed tokens of one layer, positions ``[first, first + tokens)``."""

    def __init__(
        self,
        key: Quantizer,
        value: Quantizer,
        *,
        first: int,
        device: torch.device,
        offload: bool,
    ) -> None:
        location = torch.device("cpu") if offload else device
        pinned = offload and device.type == "cuda"
        self.first = first
        self.tokens = 0
        self.device = device
        self.block_size = key.block_size
        self.sides = {
            "key": SealedSide(key, location, pinned=pinned),
            "value": SealedSide(value, location, pinned=pinned),
        }

    def seal(self, keys: Tensor, values: Tensor) -> dict[str, Tensor]:
        """Quantize and store whole blocks ``(B, H_kv, n * block, D)``; the restored K and V come back so
        that the error can be measured against the exact values while they still exist."""
        restored = {}
        for name, exact in (("key", keys), ("value", values)):
            side = self.sides[name]
            parts = side.quantizer.quantize(exact)
            side.append(parts)
            restored[name] = side.quantizer.dequantize(parts, exact.dtype)
        self.tokens += keys.shape[2]
        return restored

    def tiles(self, dtype: torch.dtype) -> Iterator[Tile]:
        """Restored tiles of whole blocks, at most :data:`TILE_TOKENS` tokens (or one block) each."""
        for start, stop in tiles_of(0, self.tokens, self.block_size):
            yield Tile(
                self.first + start,
                self.sides["key"].read(start, stop, self.device, dtype),
                self.sides["value"].read(start, stop, self.device, dtype),
            )


def tiles_of(start: int, stop: int, block_size: int) -> Iterator[tuple[int, int]]:
    """``[start, stop)`` cut into whole blocks, at most :data:`TILE_TOKENS` (or one block) each."""
    step = max(1, TILE_TOKENS // block_size) * block_size
    for low in range(start, stop, step):
        yield low, min(low + step, stop)
