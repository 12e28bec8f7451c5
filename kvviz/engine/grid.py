"""Cells of a bounded token x token map, and the max-reduction of attention rows into them.

Sinks and the newest tokens keep a cell each; the tokens between share cells of equal size when there are more
than fit. Reductions happen where the numbers are computed, so no prompt x prompt array ever exists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kvviz.events import MapGrid

MAX_CELLS = 320
_MAX_SINK_CELLS = 16
_MAX_NEWEST_CELLS = 160
_NEWEST_PROMPT_CELLS = 32


@dataclass(frozen=True, slots=True)
class CellMap:
    """``size`` tokens of ``[coarse_start, coarse_stop)`` share a cell; every other token has its own."""

    coarse_start: int
    coarse_stop: int
    size: int
    tokens: int

    @classmethod
    def of(cls, tokens: int, sink_size: int, new_tokens: int, max_cells: int = MAX_CELLS) -> CellMap:
        """The finest cells that keep a map of ``tokens``, the last ``new_tokens`` of them generated, within
        ``max_cells`` rows and columns."""
        if tokens <= max_cells:
            return cls(tokens, tokens, 1, tokens)
        sinks = min(sink_size, _MAX_SINK_CELLS, max_cells // 4)
        newest = min(_NEWEST_PROMPT_CELLS + new_tokens, _MAX_NEWEST_CELLS, max_cells // 2)
        stop = tokens - newest
        return cls(sinks, stop, -(-(stop - sinks) // (max_cells - sinks - newest)), tokens)

    @classmethod
    def of_grid(cls, grid: MapGrid) -> CellMap:
        """The cells that a record's grid describes."""
        tokens = int(grid.edges[-1])
        shared = np.flatnonzero(np.diff(grid.edges) > 1)
        if len(shared) == 0:
            return cls(tokens, tokens, 1, tokens)
        start, stop = int(grid.edges[shared[0]]), int(grid.edges[shared[-1] + 1])
        return cls(start, stop, grid.tokens_per_cell, tokens)

    @property
    def cells(self) -> int:
        """How many there are."""
        return self.cell(self.tokens - 1) + 1 if self.tokens else 0

    def cell(self, token: int) -> int:
        """The cell of a token."""
        if token < self.coarse_start:
            return token
        if token < self.coarse_stop:
            return self.coarse_start + (token - self.coarse_start) // self.size
        coarse = -(-(self.coarse_stop - self.coarse_start) // self.size)
        return self.coarse_start + coarse + token - self.coarse_stop

    def grid(self) -> MapGrid:
        """The same cells as edges."""
        coarse = range(self.coarse_start, self.coarse_stop, self.size)
        newest = range(self.coarse_stop, self.tokens + 1)
        return MapGrid(np.asarray([*range(self.coarse_start), *coarse, *newest], dtype=np.int64), self.size)

    def pieces(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """``[start, stop)`` cut where the way of reducing changes: ``(start, stop, tokens in a cell)``. A
        piece is single tokens, whole cells, or tokens of one cell."""
        low = min(stop, max(start, self.coarse_start))
        high = max(low, min(stop, self.coarse_stop))
        first_whole = low + -(low - self.coarse_start) % self.size
        last_whole = high - (high - self.coarse_start) % self.size
        if first_whole > last_whole:  # inside one cell
            first_whole = last_whole = high
        edges = [
            (start, low, 1),
            (low, first_whole, first_whole - low),
            (first_whole, last_whole, self.size),
            (last_whole, high, high - last_whole),
            (high, stop, 1),
        ]
        return [piece for piece in edges if piece[1] > piece[0]]

    def fold(self, x: Tensor, start: int, into: Tensor, axis: int = -1, first_cell: int = 0) -> None:
        """Raise cells of ``into`` to the maximum of ``x`` along ``axis``, counted from the end: index 0 of
        ``x`` is token ``start``, index 0 of ``into`` is cell ``first_cell``."""
        for low, stop, size in self.pieces(start, start + x.shape[axis]):
            part = x.narrow(axis, low - start, stop - low)
            if size > 1:
                part = torch.unflatten(part, axis, (-1, size)).amax(axis)
            place = into.narrow(axis, self.cell(low) - first_cell, part.shape[axis])
            torch.maximum(place, part, out=place)
