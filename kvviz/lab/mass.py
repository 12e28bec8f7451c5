"""The weight that each of the first positions gets, by layer and head, and the sink rate made of it.

Observes a session while it reads; knows no text. Position 0 is the first token (k = 1 in the literature).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kvviz.attention import Attention
from kvviz.cache.plan import StepPlan

#: a head has its sink on a position that gets more than this share on average (Gu et al., arXiv:2410.10781)
EPSILON = 0.3
#: heads may exceed epsilon by chance; a sink's mean weight is more than so many times that of an even spread
TWICE = 2


class PositionMass:
    """Observes one session: sums of the weight on positions ``0 .. positions - 1`` over its rows.

    Only rows from ``from_row`` on are counted.
    """

    def __init__(self, *, n_layers: int, n_heads: int, positions: int, from_row: int = 0) -> None:
        self._from_row = from_row
        self._rows = 0
        self._sums = torch.zeros(n_layers, n_heads, positions, dtype=torch.float64)

    def __call__(self, layer: int, result: Attention, step: StepPlan) -> None:
        """Add what one layer's rows read."""
        self._rows = step.stop
        first = max(0, self._from_row - step.first)
        positions = self._sums.shape[-1]
        for tile in result.tiles():  # tiles of two parts may overlap: each row sees one of them
            near = tile.weights[0, :, first:, : max(0, positions - tile.start)]
            if near.numel():
                received = (near * tile.factor[0, :, first:]).double().sum(1).cpu()
                self._sums[layer, :, tile.start : tile.start + received.shape[-1]] += received

    def mean(self) -> NDArray[np.float64]:
        """``(L, H, positions)``: mean weight on a position over the counted rows that see it.

        For ``from_row`` 0 and position ``k - 1`` this is ``1 / (T - k + 1) * sum over rows t >= k`` of the
        weight, rows and positions counted from 1. NaN for a position that no counted row sees.
        """
        seen_by = np.asarray(
            [self._rows - max(self._from_row, position) for position in range(self._sums.shape[-1])]
        )
        means: NDArray[np.float64] = self._sums.numpy() / np.where(seen_by > 0, seen_by, np.nan)
        return means


def sink_rate(mean_weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """``(..., L, H, positions)`` mean weights -> ``(..., positions)``: share of heads above ``EPSILON``."""
    rate: NDArray[np.float64] = (mean_weight > EPSILON).mean((-3, -2))
    return rate


def even_weight(tokens: int, position: int, from_row: int = 0) -> float:
    """The mean weight on ``position`` if every row spread its attention evenly over the tokens it sees."""
    rows = range(max(position, from_row), tokens)
    return sum(1 / (row + 1) for row in rows) / len(rows)


def norms(vectors: Tensor) -> NDArray[np.float64]:
    """``(1, ..., t, D)`` -> ``(t,)``: length of each vector, mean over the axes between."""
    lengths = vectors[0].double().norm(dim=-1)
    means: NDArray[np.float64] = lengths.reshape(-1, lengths.shape[-1]).mean(0).cpu().numpy()
    return means
