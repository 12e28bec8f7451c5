"""Sealed blocks of one layer: quantized once on the way in, dequantized tile by tile on the way out.

Knows a quantizer by its interface only. A tile is the most that is ever dequantized at a time, so no step
builds a full-precision copy of the sealed tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

import torch
from torch import Tensor

from kvviz.attention import Codes, Kernel, Stored, Tile
from kvviz.cache.pieces import Piece, Space, pieces_of
from kvviz.cache.prerotary import KeyTurn
from kvviz.errors import KvvizError
from kvviz.offload_config import Place
from kvviz.quant import Affine, Parts, Quantizer, narrow, wide_dtype

TILE_TOKENS = 1024

#: what surrounds a write of so many bytes to where it is not computed
Writing: TypeAlias = Callable[[int], AbstractContextManager[None]]


class SealedSide:
    """K or V of all sealed blocks of a layer; with a ``turn``, what is stored is unrotated."""

    def __init__(
        self,
        quantizer: Quantizer,
        spaces: Sequence[Space],
        *,
        first: int,
        turn: KeyTurn | None = None,
        writing: Writing | None = None,
        kernel: Kernel | None = None,
    ) -> None:
        self.quantizer = quantizer
        self._writing, self._kernel = writing, kernel
        self.first = first
        self.turn = turn
        self.pieces = pieces_of(spaces, quantizer.tokens_per_row)
        #: all that is not on the device, while it has been brought there
        self.staged: Parts = {}
        self._stored: tuple[tuple[int, int], Tensor | Codes] | None = None

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
        """Keep parts of whole blocks where there is room.

        Raises:
            KvvizError: every place is full, or the one that has room cannot take them.
        """
        self._stored = None
        rows = self.quantizer.tokens_per_row
        name, tensor = next(iter(parts.items()))
        done, tokens = 0, tensor.shape[2] * rows[name]
        for piece in self.pieces:
            take = tokens - done if piece.room is None else min(piece.room, tokens - done)
            if take:
                stop = done + take
                fresh = {p: x[:, :, done // rows[p] : stop // rows[p]] for p, x in parts.items()}
                with self._write(piece, fresh):
                    piece.append(fresh, take)
                done = stop
        if done < tokens:
            raise KvvizError("offload_full", held=self.tokens, more=tokens - done)

    def _write(self, piece: Piece, fresh: Parts) -> AbstractContextManager[None]:
        if self._writing is None or piece.place is Place.DEVICE:
            return nullcontext()
        return self._writing(sum(part.nbytes for part in fresh.values()))

    def held(self, start: int, stop: int, device: torch.device) -> Parts:
        """Parts of sealed tokens ``[start, stop)``, whole blocks, on ``device``: views where they lie there
        in one piece, else copied and put together."""
        found: dict[str, list[Tensor]] = {part: [] for part in self.quantizer.tokens_per_row}
        far = self.far_start
        for piece in self.pieces:
            low, high = max(start, piece.start), min(stop, piece.stop)
            if low < high and not (self.staged and piece.start >= far):
                for part, tensor in piece.view(low, high).items():
                    found[part].append(tensor.to(device))
        if self.staged and stop > far:
            for part, rows in self.quantizer.tokens_per_row.items():
                found[part].append(
                    self.staged[part][:, :, (max(start, far) - far) // rows : (stop - far) // rows]
                )
        return {part: x[0] if len(x) == 1 else torch.cat(x, dim=2) for part, x in found.items() if x}

    def read(self, start: int, stop: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Restored ``(B, H_kv, stop - start, D)`` of sealed tokens ``[start, stop)``; the edges are whole
        blocks."""
        parts = self.held(start, stop, device)
        if self._kernel is not None and self.turn is None and self.quantizer.affine is not None:
            codes = self._codes(parts, self.quantizer.affine)
            if self._kernel.restores(codes, self.quantizer.head_dim, dtype):
                return self._kernel.restore(codes, self.quantizer.head_dim)
        return self._restore(parts, start, dtype)

    def stored(self, start: int, stop: int, device: torch.device) -> Tensor | Codes | None:
        """Sealed tokens ``[start, stop)``, whole blocks, as they lie in memory; None when their values
        are not a scale and a minimum away from their codes."""
        if self._stored is not None and self._stored[0] == (start, stop):
            return self._stored[1]
        affine = self.quantizer.affine
        if self.turn is not None or not (affine or self.quantizer.config.is_none):
            return None
        parts = self.held(start, stop, device)
        found = parts["exact"] if affine is None else self._codes(parts, affine)
        if stop <= self.far_start:  # on the device it stays as it is from one block to the next
            self._stored = (start, stop), found
        return found

    @staticmethod
    def _codes(parts: Parts, affine: Affine) -> Codes:
        return Codes(parts["codes"], affine.bits, parts["scales"], parts.get("minima"), *affine[1:])

    def _restore(self, parts: Parts, start: int, dtype: torch.dtype) -> Tensor:
        if self.turn is None:
            return self.quantizer.dequantize(parts, dtype)
        unrotated = self.quantizer.dequantize(parts, wide_dtype(dtype))
        return narrow(self.turn.redo(unrotated, self.first + start), dtype)

    def parts(self) -> Parts:
        """Everything stored, for audits and tests; in one place it shares storage."""
        return self.held(0, self.tokens, torch.device("cpu"))

    @property
    def tokens(self) -> int:
        """How many are stored."""
        return sum(piece.tokens for piece in self.pieces)

    @property
    def far_start(self) -> int:
        """First token that is not stored on the device."""
        return next((p.start for p in self.pieces if p.place is not Place.DEVICE), self.tokens)

    def far_parts(self) -> dict[str, list[Tensor]]:
        """Each part of all that is not on the device, in pieces that follow one another."""
        far = [piece for piece in self.pieces if piece.place is not Place.DEVICE and piece.tokens]
        views = [piece.view(piece.start, piece.stop) for piece in far]
        return {part: [view[part] for view in views] for part in self.quantizer.tokens_per_row}


class SealedBlocks:
    """The sealed tokens of one layer, positions ``[first, first + tokens)``."""

    def __init__(
        self,
        key: Quantizer,
        value: Quantizer,
        *,
        first: int,
        device: torch.device,
        spaces: Sequence[Space],
        key_turn: KeyTurn | None = None,
        writing: Writing | None = None,
        kernel: Kernel | None = None,
    ) -> None:
        """``writing`` surrounds what is written to the host or to disk; without a ``kernel`` the quantizer
        itself restores codes."""
        self.first = first
        self.tokens = 0
        self.device = device
        self.block_size = key.block_size
        self.sides = {
            "key": SealedSide(key, spaces, first=first, turn=key_turn, writing=writing, kernel=kernel),
            "value": SealedSide(value, spaces, first=first, writing=writing, kernel=kernel),
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

    def tiles(
        self,
        dtype: torch.dtype,
        start: int = 0,
        stop: int | None = None,
        device: torch.device | None = None,
    ) -> Iterator[Tile]:
        """Restored tiles of sealed tokens ``[start, stop)``, whole blocks, at most :data:`TILE_TOKENS` tokens
        (or one block) each, on ``device`` or where the session computes."""
        place = device or self.device
        for low, high in tiles_of(start, self.tokens if stop is None else stop, self.block_size):
            yield Tile(
                self.first + low,
                self.sides["key"].read(low, high, place, dtype),
                self.sides["value"].read(low, high, place, dtype),
            )

    def stored(self, start: int, stop: int) -> Stored | None:
        """Sealed tokens ``[start, stop)`` as they lie in memory, or None when a side cannot be read so."""
        key, value = (self.sides[side].stored(start, stop, self.device) for side in ("key", "value"))
        if key is None or value is None:
            return None
        return Stored(self.first + start, key, value)

    def let_go(self) -> None:
        """The step's rows have read: what can leave RAM does."""
        for side in self.sides.values():
            for piece in side.pieces:
                piece.let_go()


def tiles_of(start: int, stop: int, block_size: int) -> Iterator[tuple[int, int]]:
    """``[start, stop)`` cut into whole blocks, at most :data:`TILE_TOKENS` (or one block) each."""
    step = max(1, TILE_TOKENS // block_size) * block_size
    for low in range(start, stop, step):
        yield low, min(low + step, stop)
