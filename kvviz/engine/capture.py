"""Watching a run: shares by tier, weight on each token, summaries of heads and reduced maps.

Reads scores and weights that the attention already produced, and changes no number of the run. A row's
probabilities are its weights times one factor, so sums and maxima are taken of the weights and scaled after:
nothing of the size of the scores is computed twice. Tensors become numpy here, once.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kvviz.attention import Attention, ReadTile
from kvviz.cache.plan import StepPlan
from kvviz.engine.grid import CellMap
from kvviz.events import MASS_TIERS, AttentionRows, HeadSummary


class Capture:
    """Observes one session; read after each forward."""

    def __init__(self, *, n_layers: int, n_heads: int, cells: CellMap, maps: bool) -> None:
        self._cells = cells
        self._maps = maps
        self._mass = np.zeros((n_layers, n_heads, len(MASS_TIERS)), dtype=np.float32)
        self._received = torch.zeros(0)
        self._rows: list[Tensor] = []
        self._first_row = self._seen_rows = 0
        # sums over all rows so far
        self._mass_sum = np.zeros(self._mass.shape)
        self._head_sums = np.zeros((len(_HEAD_SUMS), n_layers, n_heads))

    def __call__(self, layer: int, result: Attention, step: StepPlan) -> None:
        """Take what one layer's rows read."""
        if layer == 0:
            self._mass[:] = 0
            self._received = torch.zeros(step.stop, device=result.lse.device)
            self._rows = []
            self._first_row, self._seen_rows = step.first, step.stop
        self._take_mass(layer, result, step)
        rows = step.stop - step.first
        heads = result.lse.shape[1]
        first, looked_back, score = torch.zeros(
            3, heads, rows, dtype=result.lse.dtype, device=result.lse.device
        )
        columns = self._cells.cell(step.stop - 1) + 1
        picture = torch.zeros(heads, rows, columns, device=result.lse.device) if self._maps else None
        for tile in result.tiles():
            factor = tile.factor[0, ..., 0]
            self._received[tile.start : tile.start + tile.weights.shape[-1]] += _newest(tile)
            if tile.start == 0:
                first += tile.weights[0, ..., 0] * factor
            looked_back += _looked_back(tile, step.stop - 1) * factor
            score += _score(tile) * factor
            if picture is not None:
                self._take_map(tile, step.first, picture)
        ahead = torch.arange(rows - 1, -1, -1, device=result.lse.device)  # rows between a row and the newest
        per_row = (first, (result.lse[0] - score).clamp_min(0), looked_back - ahead)
        self._head_sums[:, layer] += torch.stack(per_row).double().sum(-1).cpu().numpy()
        if picture is not None:
            self._keep_map(picture, step)

    def _take_mass(self, layer: int, result: Attention, step: StepPlan) -> None:
        mass = result.mass()[:, 0]  # (P, H, Q)
        newest, total = mass[..., -1].float().cpu().numpy(), mass.double().sum(-1).cpu().numpy()
        for index, part in enumerate(step.parts):
            tier = MASS_TIERS.index(part.tier)
            self._mass[layer, :, tier] += newest[index]
            self._mass_sum[layer, :, tier] += total[index]

    def _take_map(self, tile: ReadTile, first_row: int, picture: Tensor) -> None:
        """Maxima of a tile's probabilities by cells of keys, into ``picture (H, Q, C)``."""
        stop = tile.start + tile.weights.shape[-1]
        first, cells = self._cells.cell(tile.start), self._cells.cell(stop - 1) + 1
        reduced = tile.weights.new_zeros(*picture.shape[:2], cells - first)
        self._cells.fold(tile.weights[0], tile.start, reduced, first_cell=first)
        reduced *= tile.factor[0]
        place = picture[..., first:cells]
        torch.maximum(place, reduced.to(place.dtype), out=place)

    def _keep_map(self, picture: Tensor, step: StepPlan) -> None:
        """Maxima by cells of rows too: ``(H, R, C)`` of the step's cells."""
        first = self._cells.cell(step.first)
        rows = picture.new_zeros(picture.shape[0], picture.shape[-1] - first, picture.shape[-1])
        self._cells.fold(picture, step.first, rows, axis=-2, first_cell=first)
        self._rows.append(rows.to(torch.float16).cpu())

    @property
    def tier_mass(self) -> NDArray[np.float32]:
        """``(L, H, len(MASS_TIERS))`` of the newest row."""
        return self._mass.copy()

    @property
    def received(self) -> NDArray[np.float32]:
        """``(T,)``: the newest row's weight on each token, mean over layers and heads."""
        n_layers, n_heads = self._mass.shape[:2]
        return (self._received / (n_layers * n_heads)).cpu().numpy().astype(np.float32)

    @property
    def head_summary(self) -> HeadSummary:
        """Means over all rows so far."""
        rows = self._seen_rows
        means = {name: total / rows for name, total in zip(_HEAD_SUMS, self._head_sums, strict=True)}
        plain = {name: mean.astype(np.float32) for name, mean in means.items()}
        return HeadSummary(rows=rows, tier_mass=(self._mass_sum / rows).astype(np.float32), **plain)

    def rows(self, run: int) -> AttentionRows | None:
        """The step's reduced map rows, ``(L, H, R, C)``."""
        if not self._rows:
            return None
        values = torch.stack(self._rows).numpy()
        return AttentionRows(run, self._cells.cell(self._first_row), values)


_HEAD_SUMS = ("first_mass", "entropy", "distance")


def _newest(tile: ReadTile) -> Tensor:
    """``(t,)``: the newest row's probabilities, summed over heads."""
    return (tile.weights[0, :, -1] * tile.factor[0, :, -1]).float().sum(0)


def _looked_back(tile: ReadTile, newest: int) -> Tensor:
    """``(H, Q)``: ``sum w_j (newest - j)``, to be scaled by the row's factor."""
    stop = tile.start + tile.weights.shape[-1]
    back = torch.arange(newest - tile.start, newest - stop, -1, device=tile.weights.device)
    return tile.weights[0] @ back.to(tile.weights.dtype)


def _score(tile: ReadTile) -> Tensor:
    """``(H, Q)``: ``sum w_j s_j``, to be scaled by the row's factor; what is not seen counts as 0."""
    lowest = torch.finfo(tile.scores.dtype).min  # 0 * -inf would not be 0
    return (tile.weights[0] * tile.scores[0].clamp_min(lowest)).sum(-1)
