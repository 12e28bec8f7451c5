"""Cells of a bounded token x token map, and the max-reduction of attention rows into them.

Sinks keep a cell each; all other tokens share cells of equal size when there are more than fit. Reductions
happen where the numbers are computed, so no prompt x prompt array ever exists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kvviz.events import MapGrid

MAX_CELLS = 256
_MAX_OWN_CELLS = 16


@dataclass(frozen=True, slots=True)
class CellMap:
    """Tokens ``< own`` have their own cell; then every ``size`` tokens share one."""

    own: int
    size: int
    tokens: int

    @classmethod
    def of(cls, tokens: int, sink_size: int, max_cells: int = MAX_CELLS) -> CellMap:
        """The finest cells that keep a map of ``tokens`` within ``max_cells`` rows and columns."""
        own = min(sink_size, _MAX_OWN_CELLS, tokens)
        size = max(1, -(-(tokens - own) // (max_cells - own)))
        return cls(own, size, tokens)

    def cell(self, token: int) -> int:
        """The cell of a token."""
        return token if token < self.own else self.own + (token - self.own) // self.size

    def grid(self) -> MapGrid:
        """The same cells as edges."""
        coarse = list(range(self.own, self.tokens, self.size))
        edges = np.asarray([*range(self.own), *coarse, self.tokens], dtype=np.int64)
        return MapGrid(edges, self.size)

    def reduce(self, x: Tensor, start: int) -> tuple[int, Tensor]:
        """Max over cells along the last axis; ``x[..., j]`` is token ``start + j``. Returns the first cell
        and the reduced tensor. Values are probabilities, so padding with 0 changes no maximum."""
        if self.size == 1:
            return start, x
        n_own = min(max(0, self.own - start), x.shape[-1])
        own, rest = x[..., :n_own], x[..., n_own:]
        if rest.shape[-1] == 0:
            return start, own
        first = start + n_own
        before = (first - self.own) % self.size
        after = -(before + rest.shape[-1]) % self.size
        padded = torch.nn.functional.pad(rest, (before, after))
        coarse = padded.reshape(*padded.shape[:-1], -1, self.size).amax(-1)
        return self.cell(start), torch.cat((own, coarse), dim=-1) if n_own else coarse
