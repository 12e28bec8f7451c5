"""What the weights alone say against a cache, before anything runs: keys that a quantizer would wipe out.

A key projection may add a constant to its channels (Qwen2 does). A channel whose constant is far above what
keys usually are sets the scale of every group that it lies in, and its neighbours are rounded to nothing.
Reads weights only; knows no text and no cache that exists. Keys are taken as they are before a key norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kvviz.catalogue import text
from kvviz.config import CacheConfig, Middle
from kvviz.events import ModelFacts
from kvviz.quant.normal_float import normal_float_values
from kvviz.quant_config import Axis, Mapping, QuantConfig, hadamard_block
from kvviz.units import format_number


@dataclass(frozen=True, slots=True, eq=False)
class KeyShift:
    """One layer: what its key projection always adds, ``(H_kv, D)`` magnitudes, and the size of a usual key.

    ``turned`` is the same after rotary, which hands a constant to both channels of a pair in turn.
    """

    layer: int
    constant: Tensor
    turned: Tensor
    usual: float


@dataclass(frozen=True, slots=True)
class _Harm:
    """The largest magnitude that would set a scale in a layer, and the channel that is the most of it."""

    shift: KeyShift
    largest: float
    head: int
    channel: int


def key_shifts(network: Any, facts: ModelFacts) -> list[KeyShift]:
    """Of every layer whose key projection adds a constant; none for most models.

    The usual size is the median over channels of the root mean square that a key has when the normed input
    is white: ``sqrt(sum_j (W_cj g_j)^2 + constant_c^2)``, ``g`` the norm's gain.
    """
    pairs = len(network.base_model.rotary_emb.inv_freq)
    shifts = []
    with torch.inference_mode():
        for index, layer in enumerate(network.base_model.layers):
            weight, bias = _key_projection(layer.self_attn, facts)
            if bias is None:
                continue
            norm = getattr(layer, "input_layernorm", None)
            gain = 1.0 if norm is None else norm.weight.float()
            offset = getattr(norm, "bias", None)
            constant = bias.float() if offset is None else bias.float() + weight.float() @ offset.float()
            energy = (weight.float() * gain).square().sum(1) + constant.square()
            shape = (facts.n_kv_heads, facts.head_dim)
            magnitudes = constant.abs().reshape(shape).cpu()
            usual = float(energy.sqrt().median())
            shifts.append(KeyShift(index, magnitudes, _turned(magnitudes, pairs), usual))
    return shifts


def _key_projection(attention: Any, facts: ModelFacts) -> tuple[Tensor, Tensor | None]:
    """Weight ``(H_kv * D, E)`` and bias of the keys, out of a joint projection where there is one."""
    own = getattr(attention, "k_proj", None)
    if own is not None:
        return own.weight, own.bias
    joint = attention.qkv_proj
    start = facts.n_heads * facts.head_dim
    keys = slice(start, start + facts.n_kv_heads * facts.head_dim)
    return joint.weight[keys], None if joint.bias is None else joint.bias[keys]


def _turned(magnitudes: Tensor, pairs: int) -> Tensor:
    """What each channel of a rotated pair reaches: the length of the pair."""
    turned = magnitudes.clone()
    pair = torch.hypot(magnitudes[:, :pairs], magnitudes[:, pairs : 2 * pairs])
    turned[:, :pairs] = turned[:, pairs : 2 * pairs] = pair
    return turned


def warnings(shifts: list[KeyShift], cache: CacheConfig) -> list[str]:
    """One sentence for each key quantizer of ``cache`` that most keys would not survive: half of its step
    is more than a usual key, so that these become one and the same code."""
    if cache.middle is not Middle.QUANTIZE:
        return []
    found: dict[str, list[_Harm]] = {}
    for shift in shifts:
        config = cache.side(shift.layer, "key")
        harm = _harm(shift, config, cache.block_size)
        if harm is not None and harm.largest * half_step(config) > shift.usual:
            found.setdefault(config.spec, []).append(harm)
    return [_sentence(QuantConfig.parse(spec), harms) for spec, harms in found.items()]


def half_step(config: QuantConfig) -> float:
    """Half the step around zero, as a share of the largest magnitude of a group; 0 where it shrinks with
    the value (fp8) and where nothing is rounded."""
    if config.codec == "nf4":
        return min(abs(value) for value in normal_float_values() if value) / 2
    if config.codec not in ("int", "nuq"):  # a codebook is taken for evenly spaced
        return 0.0
    steps = (1 << (config.bits - 1)) - 1 if config.mapping is Mapping.ABSMAX else (1 << config.bits) - 1
    return 0.5 / steps


def _harm(shift: KeyShift, config: QuantConfig, block_size: int) -> _Harm | None:
    """The channel that would set the worst scale; None where a scale belongs to one channel."""
    if config.is_none or config.axis is Axis.CHANNEL:
        return None
    constant = shift.constant if config.prerotary else shift.turned
    n_heads, head_dim = constant.shape
    size = config.group_size or head_dim
    values = size if config.axis is Axis.TOKEN else block_size * head_dim
    kept_apart = config.outliers_of(values * (n_heads if config.axis is Axis.TENSOR else 1))
    if config.axis is not Axis.TOKEN:
        kept_apart //= block_size  # a far channel needs a place for each token
    groups = constant.reshape(1, -1) if config.axis is Axis.TENSOR else constant.reshape(-1, size)
    order = torch.sort(groups, dim=-1, descending=True, stable=True)
    left = order.values[:, kept_apart:]
    if not left.shape[1]:
        return None
    largest = left[:, 0]
    if config.hadamard:  # the transform gives every channel its share of the constants
        largest = left.square().sum(-1).sqrt() / math.sqrt(hadamard_block(head_dim))
    worst = int(largest.argmax())
    place = worst * groups.shape[1] + int(order.indices[worst, kept_apart])
    head = place // head_dim
    return _Harm(shift, float(largest[worst]), head, int(shift.constant[head].argmax()))


def _sentence(config: QuantConfig, harms: list[_Harm]) -> str:
    worst = max(harms, key=lambda harm: harm.largest / harm.shift.usual)
    constant = float(worst.shift.constant[worst.head, worst.channel])
    return text(
        "safety.key_shift",
        bits=config.bits,
        layer=worst.shift.layer,
        head=worst.head,
        channel=worst.channel,
        constant=format_number(constant),
        usual=format_number(worst.shift.usual),
        times=format_number(constant / worst.shift.usual),
        step=format_number(2 * half_step(config) * worst.largest),
        spec=config.spec,
        layers=", ".join(str(harm.shift.layer) for harm in harms),
    )
