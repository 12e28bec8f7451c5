"""Blocks that are due when a step begins, sealed in all layers at once.

A block of one layer is so small that a quantizer spends its time on calling, not on computing; all layers
together are one call. Nothing else changes: a block's codes depend on its values alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import torch
from torch import Tensor

from kvviz.cache.layer import LayerCache
from kvviz.quant import wide_dtype
from kvviz.quant_config import QuantConfig

#: more than so many tokens a layer are left to the layers: a long prompt must not be copied as a whole
MOST_TOKENS = 256


def seal_ahead(layers: Sequence[LayerCache], stop: int) -> None:
    """Seal what every layer holds exactly of whole blocks below position ``stop``."""
    sealed = layers[0].sealed
    start = sealed.first + sealed.tokens
    tokens = (stop - start) // sealed.block_size * sealed.block_size
    if not 0 < tokens <= MOST_TOKENS:
        return
    for group in _alike(layers):
        if all(len(layer.recent["key"]) >= start + tokens - layer.recent_start for layer in group):
            _seal(group, start, start + tokens)


def _alike(layers: Sequence[LayerCache]) -> Iterable[list[LayerCache]]:
    """Neighbours with the same quantizers; those that were calibrated are each their own."""
    for (_, _, alone), group in groupby(enumerate(layers), lambda pair: _kind(*pair)):
        same = [layer for _, layer in group]
        if not alone and len(same) > 1:
            yield same


def _kind(index: int, layer: LayerCache) -> tuple[QuantConfig, QuantConfig, int]:
    key, value = (layer.sealed.sides[side].quantizer.config for side in ("key", "value"))
    return key, value, index + 1 if key.needs_calibration or value.needs_calibration else 0


def _seal(layers: Sequence[LayerCache], start: int, stop: int) -> None:
    """Positions ``[start, stop)`` of all ``layers``, their axis in place of the batch."""
    first = layers[0].recent_start
    exact = {
        side: torch.cat([layer.recent[side].view(start - first, stop - first) for layer in layers])
        for side in ("key", "value")
    }
    found = {side: layers[0].sealed.sides[side].code(exact[side], layers[0].sealed.tokens) for side in exact}
    for side, (parts, restored) in found.items():
        signal, error = _energies(exact[side], restored)
        torch._foreach_add_([layer.energy.signal[side] for layer in layers], list(signal.unbind()))
        torch._foreach_add_([layer.energy.error[side] for layer in layers], list(error.unbind()))
        own = {part: torch.split(x, 1) for part, x in parts.items()}
        for index, layer in enumerate(layers):
            layer.sealed.sides[side].store({part: x[index] for part, x in own.items()})
    for layer in layers:
        layer.sealed.tokens += stop - start


def _energies(exact: Tensor, restored: Tensor) -> Tensor:
    """``(2, L, H_kv, D)`` float64: squares of exact values and of errors, summed over tokens."""
    wide = exact.to(wide_dtype(exact.dtype))
    ones = wide.new_ones(1, wide.shape[2])  # a block is summed by a product, blocks in float64
    both = (wide, wide - restored.to(wide.dtype))
    return torch.stack([(ones @ x.square()).squeeze(2) for x in both]).double().cpu()
