"""The check that speaks before a run: a planted key bias is found where it is, and only where it harms."""

from __future__ import annotations

import time

import pytest
import torch

from kvviz.config import CacheConfig, LayerOverride, Middle
from kvviz.models import safety
from kvviz.models.tiny import tiny_model
from kvviz.presets import preset, preset_names
from kvviz.quant_config import QuantConfig

SHIFT = 600.0
LAYER, HEAD, CHANNEL = 1, 1, 7


def quantizing(key: str, **more) -> CacheConfig:
    return CacheConfig(2, 4, Middle.QUANTIZE, 16, QuantConfig.parse(key), QuantConfig(), **more)


@pytest.fixture(scope="module")
def planted():
    """A random Qwen2 whose layer 1 adds 600 to channel 7 of KV head 1."""
    model = tiny_model("qwen2", seed=3)
    for layer in model.network.base_model.layers:
        layer.self_attn.k_proj.bias.zero_()
    model.network.base_model.layers[LAYER].self_attn.k_proj.bias[HEAD * 16 + CHANNEL] = SHIFT
    return model


@pytest.mark.parametrize(
    "key",
    [
        "int4:token:g16:absmax", "int4:token:g16:minmax", "int2:head:minmax", "nf4:token:g16",
        "int4:tensor:absmax", "int4:token:g16:minmax+prerotary", "int4:token:g16:absmax+hadamard",
        "int4:token:g16:absmax+outliers1", "int8:token:g16:absmax",
    ],
)  # fmt: skip
def test_a_planted_bias_is_named(planted, key):
    (said,) = planted.warnings(quantizing(key))
    bits = QuantConfig.parse(key).bits
    assert said.startswith(f"{bits}-bit keys are likely to break this model, because the key projection of")
    assert f"layer {LAYER} adds 600.0 to channel {CHANNEL} of KV head {HEAD}" in said
    assert key in said
    assert said.count(f"Layers concerned: {LAYER}.") == 1


@pytest.mark.parametrize(
    "key",
    [
        "none", "int4:channel:g16:minmax", "int2:channel:g16:absmax", "fp8", "int8:token:g16:minmax",
        "int4:token:g16:minmax+outliers12.5",  # two places: the channel and its rotary partner
        "int4:token:g16:minmax+prerotary+outliers1",  # before rotary one place is enough
        "int4:head:minmax+outliers12.5",
    ],
)  # fmt: skip
def test_caches_that_bear_it_are_passed_in_silence(planted, key):
    if key.startswith("int8"):  # half a step of 600 is 1.2 here, and a usual key of this model is larger
        assert safety.half_step(QuantConfig.parse(key)) * SHIFT < planted._key_shifts[LAYER].usual
    assert planted.warnings(quantizing(key)) == []


def test_only_the_caches_that_quantize_are_looked_at(planted):
    int4 = QuantConfig.parse("int4:token:g16:absmax")
    assert planted.warnings(CacheConfig(key=int4)) == []
    assert planted.warnings(CacheConfig(middle=Middle.EVICT, key=int4)) == []
    spared = LayerOverride(LAYER, QuantConfig.parse("int4:channel:g16:absmax"), QuantConfig())
    assert planted.warnings(quantizing(int4.spec, overrides=(spared,))) == []
    hit = LayerOverride(LAYER, int4, QuantConfig())
    assert len(planted.warnings(quantizing("none", overrides=(hit,)))) == 1


def test_the_numbers_are_those_of_the_weights(planted):
    shift = planted._key_shifts[LAYER]
    assert shift.constant[HEAD, CHANNEL] == shift.turned[HEAD, CHANNEL] == SHIFT
    assert shift.turned[HEAD, CHANNEL + 8] == SHIFT  # its rotary partner
    assert shift.constant.sum() == SHIFT
    layer = planted.network.base_model.layers[LAYER]
    expected = (layer.self_attn.k_proj.weight * layer.input_layernorm.weight).norm(dim=1)
    expected[HEAD * 16 + CHANNEL] = SHIFT
    assert shift.usual == pytest.approx(float(expected.median()), rel=1e-5)
    ids = torch.randint(0, 256, (64,), generator=torch.Generator().manual_seed(0)).tolist()
    session = planted.new_session(CacheConfig())
    planted.forward(ids, session, last_only=True)
    keys = session.layers[LAYER].exact("key")[0]  # (H_kv, T, D)
    assert keys.square().mean((0, 1)).sqrt().median() == pytest.approx(shift.usual, rel=0.3)
    assert keys[HEAD, :, [CHANNEL, CHANNEL + 8]].norm(dim=-1).mean() == pytest.approx(SHIFT, rel=0.02)


def test_a_small_bias_and_none_at_all_are_silent(tiny):
    int4 = quantizing("int4:token:g16:absmax")
    qwen = tiny("qwen2")
    assert len(qwen._key_shifts) == 2
    for family in ("llama", "qwen2", "qwen3", "phi3"):
        assert tiny(family).warnings(int4) == []
    assert tiny("llama")._key_shifts == tiny("phi3")._key_shifts == []


def test_what_is_warned_of_is_true(planted):
    """4-bit token keys of the planted model lose most of what they were; channel groups do not."""
    ids = torch.randint(0, 256, (96,), generator=torch.Generator().manual_seed(1)).tolist()
    lost = {}
    for key in ("int4:token:g16:absmax", "int4:channel:g16:minmax"):
        session = planted.new_session(quantizing(key))
        planted.forward(ids, session, last_only=True)
        error = session.seal_error()
        others = [c for c in range(16) if c not in (CHANNEL, CHANNEL + 8)]
        energies = (error.key_error[LAYER, HEAD, others], error.key_signal[LAYER, HEAD, others])
        lost[key] = float((energies[0].sum() / energies[1].sum()) ** 0.5)
    assert lost["int4:token:g16:absmax"] > 0.9
    assert lost["int4:channel:g16:minmax"] < 0.2


@pytest.mark.real
def test_the_default_model_is_silent_for_all_presets_and_quick(default_model):
    begin = time.perf_counter()
    shifts = safety.key_shifts(default_model.network, default_model.facts)
    said = [safety.warnings(shifts, preset(name)) for name in preset_names()]
    assert time.perf_counter() - begin < 1.0
    assert said == [[]] * len(preset_names())
