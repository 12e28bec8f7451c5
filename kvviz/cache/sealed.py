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
from kvviz.cache.prerotary import KeyTurn
from kvviz.quant import Parts, Quantizer, narrow, wide_dtype

TILE_TOKENS = 1024


class SealedSide:
    """K or V of all sealed blocks of a layer; with a ``turn``, what is stored is unrotated."""

    def __init__(
        self,
        quantizer: Quantizer,
        location: torch.device,
        *,
        first: int,
        pinned: bool,
        turn: KeyTurn | None = None,
    ) -> None:
        self.quantizer = quantizer
        self.first = first
        self.turn = turn
        self.buffers = {part: TokenBuffer(location, pinned=pinned) for part in quantizer.tokens_per_row}

    def seal(self, exact: Tensor, start: int) -> Tensor:
        """Quantize whole blocks ``(B, H_kv, t, D)``, the next after ``start`` sealed tokens, and store them
        where this side lives; what will be read of them comes back."""
        parts, restored = self.code(exact, start)
        self.store(parts)
        return restored

    def code(self, exact: Tensor, start: int) -> tuple[Parts, Tensor]:
        """Parts of whole blocks, the next after ``start`` sealed tokens, and what will be read of them;
        nothing is stored. The first axis may be anything, layers for one."""
        own = exact if self.turn is None else self.turn.undo(exact, self.first + start)
        parts = self.quantizer.quantize(own)
        return parts, self._restore(parts, start, exact.dtype)

    def store(self, parts: Parts) -> None:
        """Keep parts where this side lives."""
        for part, tensor in parts.items():
            self.buffers[part].append(tensor)

    def read(self, start: int, stop: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Restored ``(B, H_kv, stop - start, D)`` of sealed tokens ``[start, stop)``; the edges are whole
        blocks."""
        parts = {}
        for part, rows in self.quantizer.tokens_per_row.items():
            parts[part] = self.buffers[part].view(start // rows, stop // rows).to(device)
        return self._restore(parts, start, dtype)

    def _restore(self, parts: Parts, start: int, dtype: torch.dtype) -> Tensor:
        if self.turn is None:
            return self.quantizer.dequantize(parts, dtype)
        unrotated = self.quantizer.dequantize(parts, wide_dtype(dtype))
        return narrow(self.turn.redo(unrotated, self.first + start), dtype)

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
        key_turn: KeyTurn | None = None,
    ) -> None:
        location = torch.device("cpu") if offload else device
        pinned = offload and device.type == "cuda"
        self.first = first
        self.tokens = 0
        self.device = device
        self.block_size = key.block_size
        self.sides = {
            "key": SealedSide(key, location, first=first, pinned=pinned, turn=key_turn),
            "value": SealedSide(value, location, first=first, pinned=pinned),
        }

    def seal(self, keys: Tensor, values: Tensor) -> dict[str, Tensor]:
        """Quantize and store whole blocks ``(B, H_kv, n * block, D)``; the restored K and V come back so
        that the error can be measured against the exact values while they still exist."""
        restored = {
            "key": self.sides["key"].seal(keys, self.tokens),
            "value": self.sides["value"].seal(values, self.tokens),
        }
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
