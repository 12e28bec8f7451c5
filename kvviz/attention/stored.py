"""Keys and values as they lie in memory: exact numbers, or codes with scales.

Knows codes as numbers, ``minimum + scale * (code - offset)``, and no quantizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """K or V as codes: ``minimum + scale * (code - offset)``, one scale for ``group_tokens`` consecutive
    tokens by ``group_channels`` channels.

    ``data (B, H_kv, T, bytes)`` uint8, a stream of ``bits`` bits a code, the first in the lowest bits;
    ``scale`` and ``minimum (B, H_kv or 1, T / group_tokens, D / group_channels)``, fp16 or fp32.
    """

    data: Tensor
    bits: int
    scale: Tensor
    minimum: Tensor | None
    offset: int
    group_tokens: int
    group_channels: int


class Stored(NamedTuple):
    """Consecutive tokens from position ``start`` as they lie in memory; exact is ``(B, H_kv, T, D)``."""

    start: int
    key: Tensor | Codes
    value: Tensor | Codes

    @property
    def tokens(self) -> int:
        """How many."""
        return (self.key.data if isinstance(self.key, Codes) else self.key).shape[2]
