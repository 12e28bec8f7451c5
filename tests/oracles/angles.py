"""Rotary angles in float64, put in place of a network's own.

The library computes cosines and sines in fp32 whatever the network's dtype, so that a turn back and forth is
exact to about 1e-7 only; with these angles the same identity must hold to 1e-9.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class ExactAngles(torch.nn.Module):
    """Cosines and sines of ``position * inv_freq``, each frequency for both halves."""

    def __init__(self, inv_freq: Tensor) -> None:
        super().__init__()
        self.inv_freq = inv_freq.double()

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        half = position_ids.unsqueeze(-1).double() * self.inv_freq
        angles = torch.cat((half, half), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


@contextmanager
def exact_angles(network: Any):
    own = network.base_model.rotary_emb
    network.base_model.rotary_emb = ExactAngles(own.inv_freq)
    try:
        yield
    finally:
        network.base_model.rotary_emb = own
