"""Keys before rotary: the turn that the model gave each key is undone at sealing and done again on read.

Why: rotary mixes two channels by an angle that changes with the position, so a channel that is always large
before it is large now here, now there after it; unrotated keys keep their channels (KVQuant,
arXiv:2401.18079). The inverse is that of the angles as the model applied them, in the run's dtype, attention
scaling included. Knows positions and keys, no quantizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from kvviz.attention import rotate

#: positions ``(N,)`` int64 -> cosines and sines ``(N, R)`` at the model's own frequencies
Rotary: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]

_STEP = 1024  # positions; the table grows by whole steps


class KeyTurn:
    """The rotation of keys by their positions, there and back; one table of angles for all layers of a run.

    The table is the model's own and is no part of the cache: the ledger does not count it.
    """

    def __init__(self, rotary: Rotary, dtype: torch.dtype, device: torch.device) -> None:
        self._rotary, self._dtype, self._device = rotary, dtype, device
        self._wide = torch.float64 if dtype is torch.float64 else torch.float32
        self._table: tuple[Tensor, Tensor] | None = None

    def undo(self, keys: Tensor, start: int) -> Tensor:
        """Rotated ``(B, H_kv, t, D)`` at positions from ``start`` -> unrotated, at least fp32."""
        cos, sin = (x.to(keys.device) for x in self._angles(start, start + keys.shape[2]))
        norm = cos.square() + sin.square()
        return rotate(keys.to(self._wide), cos / norm, -sin / norm)

    def redo(self, keys: Tensor, start: int) -> Tensor:
        """Inverse of :meth:`undo`."""
        cos, sin = (x.to(keys.device) for x in self._angles(start, start + keys.shape[2]))
        return rotate(keys.to(self._wide), cos, sin)

    def _angles(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines ``(stop - start, R)`` as the model applied them."""
        if self._table is None or len(self._table[0]) < stop:
            positions = torch.arange(-(-stop // _STEP) * _STEP, device=self._device)
            cos, sin = self._rotary(positions)
            self._table = (cos.to(self._dtype).to(self._wide), sin.to(self._dtype).to(self._wide))
        cos, sin = self._table
        return cos[start:stop], sin[start:stop]
