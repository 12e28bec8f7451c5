"""Watching a run: shares by tier, weight on each token, and reduced maps, from what was computed anyway.

Reads scores and log-sum-exps that the attention already produced, and changes no number of the run.
Tensors become numpy here, once.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kvviz.attention import Attention
from kvviz.cache.plan import StepPlan
from kvviz.engine.grid import CellMap
from kvviz.events import MASS_TIERS, AttentionRows


class Capture:
    """Observes one session; read after each forward."""

    def __init__(self, *, n_layers: int, n_heads: int, cells: CellMap, maps: bool) -> None:
        self._shape = (n_layers, n_heads)
        self._cells = cells
        self._maps = maps
        self._mass = np.zeros((n_layers, n_heads, len(MASS_TIERS)), dtype=np.float32)
        self._received = torch.zeros(0)
        self._rows: list[Tensor] = []
        self._first_row = 0

    def __call__(self, layer: int, result: Attention, step: StepPlan) -> None:
        """Take what one layer's rows read."""
        if layer == 0:
            self._mass[:] = 0
            self._received = torch.zeros(step.stop)
            self._rows = []
            self._first_row = step.first
        last_row = result.mass()[:, 0, :, -1].float().cpu().numpy()  # (P, H)
        for part, share in zip(step.parts, last_row, strict=True):
            self._mass[layer, :, MASS_TIERS.index(part.tier)] += share
        self._take_weights(result, step)

    def _take_weights(self, result: Attention, step: StepPlan) -> None:
        n_layers, n_heads = self._shape
        rows = step.stop - step.first
        columns = self._cells.cell(step.stop - 1) + 1
        picture = torch.zeros(n_heads, rows, columns) if self._maps else None
        for start, weights in result.weights():
            newest = weights[0, :, -1].float().sum(0).cpu() / (n_layers * n_heads)
            self._received[start : start + len(newest)] += newest
            if picture is not None:
                cell, reduced = self._cells.reduce(weights[0].float().cpu(), start)
                place = picture[:, :, cell : cell + reduced.shape[-1]]
                torch.maximum(place, reduced, out=place)
        if picture is not None:
            _, reduced = self._cells.reduce(picture.transpose(1, 2), step.first)
            self._rows.append(reduced.transpose(1, 2).to(torch.float16))

    @property
    def tier_mass(self) -> NDArray[np.float32]:
        """``(L, H, len(MASS_TIERS))`` of the newest row."""
        return self._mass.copy()

    @property
    def received(self) -> NDArray[np.float32]:
        """``(T,)``: the newest row's weight on each token, mean over layers and heads."""
        return self._received.numpy().astype(np.float32)

    def rows(self, run: int) -> AttentionRows | None:
        """The step's reduced map rows, ``(L, H, R, C)``."""
        if not self._rows:
            return None
        values = torch.stack(self._rows).numpy()
        return AttentionRows(run, self._cells.cell(self._first_row), values)
