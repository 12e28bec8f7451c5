"""Two ways of letting a quantized cache grow: seal each block once, or take all apart and quantize it again.

The second is what caches do that hold one quantized tensor and an exact rest: at every flush all that is
stored is restored, the rest is appended, and the whole is quantized as one tensor. A scale that belongs to
a token, or to a group of tokens that stays together, meets the same values again; one that belongs to the
whole (``head``, ``tensor``) meets other company at every flush.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvviz.quant.registry import make_quantizer
from kvviz.quant_config import Axis, QuantConfig


class SealedOnce:
    """Blocks ``(B, H, t, D)``, each quantized when it comes and never again."""

    def __init__(self, config: QuantConfig, *, block_size: int) -> None:
        self._config, self._block_size = config, block_size
        self._restored: list[Tensor] = []

    def add(self, block: Tensor) -> Tensor:
        """Take one more block; everything as it is read now, ``(B, H, T, D)``."""
        self._restored.append(_there_and_back(block, self._config, self._block_size))
        return torch.cat(self._restored, dim=2)


class Requantized:
    """Everything ``(B, H, T, D)``, quantized again as one tensor whenever a block comes."""

    def __init__(self, config: QuantConfig, *, block_size: int) -> None:
        self._config, self._block_size = config, block_size
        self._restored: Tensor | None = None

    def add(self, block: Tensor) -> Tensor:
        """Take one more block; everything as it is read now, ``(B, H, T, D)``."""
        held = [] if self._restored is None else [self._restored]
        whole = torch.cat([*held, block], dim=2)
        shared = self._config.axis in (Axis.HEAD, Axis.TENSOR)
        self._restored = _there_and_back(whole, self._config, whole.shape[2] if shared else self._block_size)
        return self._restored


def _there_and_back(x: Tensor, config: QuantConfig, block_size: int) -> Tensor:
    tool = make_quantizer(config, head_dim=x.shape[-1], block_size=block_size, dtype=x.dtype)
    return tool.dequantize(tool.quantize(x), x.dtype)
