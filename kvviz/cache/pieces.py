"""Consecutive sealed tokens of one side that lie in one place, and what fits where.

Knows parts by name, rows and stores; knows no quantizer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvviz.cache.buffer import TokenBuffer
from kvviz.config import CacheConfig
from kvviz.offload import Store, open_store
from kvviz.offload_config import Place
from kvviz.quant import Parts, Quantizer


@dataclass(frozen=True, slots=True)
class Space:
    """A store and the sealed tokens of each layer that it takes; None is no limit."""

    store: Store
    most_tokens: int | None

    @property
    def is_near(self) -> bool:
        """True on the device."""
        return self.store.place is Place.DEVICE


def open_spaces(
    config: CacheConfig,
    device: torch.device,
    layers: int,
    quantizer: Callable[[int, str], Quantizer],
    like: Tensor,
) -> list[Space]:
    """The places of ``config`` in the order in which they are filled. ``like``: zeros of one block,
    ``(1, H_kv, block, D)``; a capacity in bytes is worked out from what they take in every layer."""
    block_bytes = 0
    if config.offload.counts_bytes:
        sides = [quantizer(layer, side) for layer in range(layers) for side in ("key", "value")]
        block_bytes = sum(part.nbytes for side in sides for part in side.quantize(like).values())
    return [
        Space(open_store(place, device), tokens)
        for place, tokens in config.offload.capacities(config.block_size, block_bytes)
    ]


class Piece:
    """Sealed tokens ``[start, start + tokens)`` of one side in one store."""

    def __init__(self, space: Space, start: int, tokens_per_row: dict[str, int]) -> None:
        self.start, self.tokens = start, 0
        self._space, self._rows = space, tokens_per_row
        most = space.most_tokens
        self.buffers = {
            part: TokenBuffer(space.store, most_rows=None if most is None else most // rows)
            for part, rows in tokens_per_row.items()
        }

    @property
    def place(self) -> Place:
        """Where it lies."""
        return self._space.store.place

    @property
    def stop(self) -> int:
        """First token after it."""
        return self.start + self.tokens

    @property
    def room(self) -> int | None:
        """Tokens that still fit; None is no limit."""
        most = self._space.most_tokens
        return None if most is None else most - self.tokens

    def append(self, parts: Parts, tokens: int) -> None:
        """Store ``tokens`` more."""
        for part, tensor in parts.items():
            self.buffers[part].append(tensor)
        self.tokens += tokens

    def view(self, start: int, stop: int) -> Parts:
        """Parts of tokens ``[start, stop)``, sharing storage."""
        return {
            part: self.buffers[part].view((start - self.start) // rows, (stop - self.start) // rows)
            for part, rows in self._rows.items()
        }

    def let_go(self) -> None:
        """Nobody will read it for a while."""
        for buffer in self.buffers.values():
            buffer.let_go()


def pieces_of(spaces: Sequence[Space], tokens_per_row: dict[str, int]) -> list[Piece]:
    """One empty piece a space; each begins where the one before is full."""
    pieces, start = [], 0
    for space in spaces:
        pieces.append(Piece(space, start, tokens_per_row))
        start += space.most_tokens or 0
    return pieces
