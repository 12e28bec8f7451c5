"""Rotary positions as cosines and sines: move a query that is already rotated.

Convention: the first ``R`` of ``D`` dimensions rotate, half against half (arXiv:2104.09864, the layout of
Llama-type models). Knows no frequencies; the model hands in its own cosines and sines.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate ``x (B, H, Q, D)`` by angles given as ``cos``/``sin (Q, R)``; dimensions past ``R`` pass."""
    turning, still = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    first, second = turning.chunk(2, dim=-1)
    turned = turning * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((turned, still), dim=-1) if still.shape[-1] else turned


def difference(cos_from: Tensor, sin_from: Tensor, cos_to: Tensor, sin_to: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the turn that undoes ``from`` and does ``to``.

    The exact inverse of the rotation as it was applied, rounding and attention scaling included, so that the
    result equals rotating the unrotated query at the new position.
    """
    norm = cos_from * cos_from + sin_from * sin_from
    cos = (cos_to * cos_from + sin_to * sin_from) / norm
    sin = (sin_to * cos_from - cos_to * sin_from) / norm
    return cos, sin
