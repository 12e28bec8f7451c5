"""Settings say what they mean, refuse what contradicts itself, and survive their text form."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.config import (
    CacheConfig,
    LayerOverride,
    Middle,
    Offload,
    Position,
    Prefill,
    RunConfig,
    SamplingConfig,
    parse_choice,
)
from kvviz.errors import ConfigError
from kvviz.quant_config import Axis, Mapping, QuantConfig

INT4 = QuantConfig.parse("int4:channel:g32:minmax")


def code(build) -> str:
    with pytest.raises(ConfigError) as refusal:
        build()
    assert str(refusal.value)
    return refusal.value.code


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ("none", ("none", 16, Axis.TENSOR, None, Mapping.ABSMAX, 16)),
        ("int8:token:g64:absmax", ("int", 8, Axis.TOKEN, 64, Mapping.ABSMAX, 16)),
        ("int4:channel:g32:minmax", ("int", 4, Axis.CHANNEL, 32, Mapping.MINMAX, 16)),
        ("int2:head:minmax:m32", ("int", 2, Axis.HEAD, None, Mapping.MINMAX, 32)),
        ("int3:channel:g64:minmax", ("int", 3, Axis.CHANNEL, 64, Mapping.MINMAX, 16)),
        ("nf4:token:g64", ("nf4", 4, Axis.TOKEN, 64, Mapping.ABSMAX, 16)),
        ("nf4:tensor:m32", ("nf4", 4, Axis.TENSOR, None, Mapping.ABSMAX, 32)),
        ("fp8", ("fp8", 8, Axis.TENSOR, None, Mapping.ABSMAX, 16)),
        (
            "int4:token:g64:absmax:m32+prerotary+outliers0.5+hadamard",
            ("int", 4, Axis.TOKEN, 64, Mapping.ABSMAX, 32, True, 0.5, True),
        ),
        ("fp8+outliers12", ("fp8", 8, Axis.TENSOR, None, Mapping.ABSMAX, 16, False, 12.0)),
        ("nuq3:head", ("nuq", 3, Axis.HEAD, None, Mapping.MINMAX, 16)),
        (
            "fp8+static+guard2.5",
            ("fp8", 8, Axis.TENSOR, None, Mapping.ABSMAX, 16, False, 0.0, False, True, 2.5),
        ),
        ("nf4:head+prerotary", ("nf4", 4, Axis.HEAD, None, Mapping.ABSMAX, 16, True)),
        ("fp8:token:g16", ("fp8", 8, Axis.TOKEN, 16, Mapping.ABSMAX, 16)),
    ],
)
def test_spec_strings(spec, fields):
    config = QuantConfig.parse(spec)
    assert dataclasses.astuple(config) == (*fields, *(False, 0.0, False, False, 0.0)[len(fields) - 6 :])
    assert config.spec == spec
    assert QuantConfig.parse(f" {spec.upper()} ") == config


@given(
    st.builds(
        lambda head, axis, mapping, meta: ":".join(filter(None, (head, axis, mapping, meta))),
        st.sampled_from(["int8", "int4", "int3", "int2"]),
        st.sampled_from(["token:g16", "token:g80", "channel:g1", "head", "tensor"]),
        st.sampled_from(["absmax", "minmax"]),
        st.sampled_from(["", "m16", "m32"]),
    )
)
def test_spec_round_trip(spec):
    config = QuantConfig.parse(spec)
    assert QuantConfig.parse(config.spec) == config
    assert config.spec == spec.removesuffix(":m16")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("", "quant_spec"), ("int", "quant_spec"), ("int4", "quant_spec"), ("int4:absmax", "quant_spec"),
        ("int4:token:g16", "quant_spec"), ("int4:token:g16:absmax:absmax", "quant_spec"),
        ("int4:token:g16:absmax:m8", "quant_spec"), ("int5:token:g16:absmax", "quant_bits"),
        ("int16:token:g16:absmax", "quant_bits"), ("int4:token:absmax", "quant_group_missing"),
        ("int4:token:g0:absmax", "quant_group_missing"), ("int4:head:g16:absmax", "quant_group_unused"),
        ("int4:token:g16:absmax+outliers", "quant_modifier"), ("fp8:minmax", "quant_mapping"),
        ("nf4", "quant_spec"), ("nf4:token", "quant_group_missing"), ("nf4:head:minmax", "quant_mapping"),
        ("nf3:head", "quant_spec"), ("fp8+", "quant_modifier"), ("fp8+outliers1%", "quant_modifier"),
        ("fp8+outliers-1", "quant_modifier"), ("fp8+rotate", "quant_modifier"), ("+hadamard", "quant_spec"),
        ("fp8+hadamard+hadamard", "quant_modifier_twice"), ("fp8+static+static", "quant_modifier_twice"),
        ("fp8+outliers1+outliers2", "quant_modifier_twice"), ("fp8+outliers0", "quant_outliers"),
        ("fp8+outliers50.5", "quant_outliers"), ("fp8+outliers" + "9" * 400, "quant_outliers"),
        ("none+hadamard", "quant_none_modifier"), ("none+outliers1", "quant_none_modifier"),
        ("none+prerotary", "quant_none_modifier"), ("none+static", "quant_none_modifier"),
        ("nuq8:head", "quant_nuq_bits"), ("nuq4:head:absmax", "quant_nuq_mapping"), ("nuq4", "quant_spec"),
        ("fp8+guard1", "quant_guard"), ("fp8+static+guard0", "quant_outliers"),
        ("fp8+static+guard60", "quant_outliers"), ("fp8+outliers1+static+guard1", "quant_guard"),
    ],
)  # fmt: skip
def test_bad_specs_are_refused(spec, expected):
    assert code(lambda: QuantConfig.parse(spec)) == expected


def test_an_unknown_modifier_is_answered_with_those_that_exist():
    with pytest.raises(ConfigError, match=r"\+rotate is no .*\+prerotary .*\+outliersP .*\+hadamard"):
        QuantConfig.parse("fp8+rotate")


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("fp8+guard+static", "fp8+static+guard1"),
        ("nuq3:channel:g32:minmax+guard0.5+static+prerotary", "nuq3:channel:g32+prerotary+static+guard0.5"),
        ("fp8+hadamard+outliers2+prerotary", "fp8+prerotary+outliers2+hadamard"),
        (" NF4:head:m16 + Outliers01.50 ", "nf4:head+outliers1.5"),
        ("fp8+outliers0.0001", "fp8+outliers0.0001"),
        ("fp8+outliers10", "fp8+outliers10"),
        ("fp8+outliers20.0+hadamard", "fp8+outliers20+hadamard"),
        ("fp8+outliers0.00000001", "fp8+outliers0.00000001"),
    ],
)
def test_modifiers_have_one_order_and_one_form(written, canonical):
    config = QuantConfig.parse(written)
    assert config.spec == canonical
    assert QuantConfig.parse(canonical) == config


@pytest.mark.parametrize(
    ("percent", "size", "count"),
    [
        ("1", 64, 1), ("0.01", 4096, 1), ("2.5", 60, 2), ("2.5", 100, 2), ("3.5", 100, 4), ("0.7", 500, 4),
        ("0.5", 300, 2), ("5", 64, 3), ("50", 64, 32), ("30", 1, 1), ("1", 12288, 123),
    ],
)  # fmt: skip
def test_outliers_are_counted_half_to_even_and_at_least_one(percent, size, count):
    assert QuantConfig.parse(f"fp8+outliers{percent}").outliers_of(size) == count
    assert QuantConfig.parse("fp8").outliers_of(size) == 0


def test_contradictions_are_refused():
    for minimum, values in {
        "sink_size": (-1, None, 1.5, True), "window_size": (0, -1, None, 2.0), "block_size": (0, -8, None),
    }.items():  # fmt: skip
        for value in values:
            assert code(lambda name=minimum, v=value: CacheConfig(**{name: v})) == "int_minimum"
    assert code(lambda: CacheConfig(middle=Middle.EVICT, prefill=Prefill.EXACT)) == "prefill_exact_evict"
    assert code(lambda: CacheConfig(offload=Offload.HOST)) == "offload_needs_blocks"
    twice = (LayerOverride(1, INT4, INT4), LayerOverride(1, INT4, INT4))
    assert code(lambda: CacheConfig(overrides=twice)) == "override_twice"
    turned = QuantConfig.parse("fp8+prerotary")
    assert code(lambda: CacheConfig(value=turned)) == "prerotary_value"
    assert code(lambda: CacheConfig(overrides=(LayerOverride(1, INT4, turned),))) == "prerotary_value"
    assert code(lambda: RunConfig("x", max_new_tokens=0)) == "int_minimum"
    assert code(lambda: RunConfig("x", chunk_size=0)) == "int_minimum"
    assert code(lambda: SamplingConfig(temperature=-1)) == "range"
    assert code(lambda: SamplingConfig(top_p=0)) == "range"


def test_what_a_model_cannot_do_is_refused():
    def check(config, **more):
        return code(lambda: config.check_model(n_layers=2, head_dim=80, **more))

    token = QuantConfig.parse("int4:token:g64:absmax")
    assert check(CacheConfig(middle=Middle.QUANTIZE, key=token)) == "quant_group"
    assert check(CacheConfig(middle=Middle.QUANTIZE, block_size=24, value=INT4)) == "quant_group"
    assert check(CacheConfig(overrides=(LayerOverride(2, INT4, INT4),))) == "override_layer"
    rotated = QuantConfig.parse("fp8+hadamard")
    for head_dim, block in ((24, 8), (40, 8), (36, 4)):
        with pytest.raises(ConfigError, match=f"{head_dim}, which is {block}") as refusal:
            CacheConfig(middle=Middle.QUANTIZE, value=rotated).check_model(n_layers=2, head_dim=head_dim)
        assert refusal.value.code == "quant_hadamard"
    for head_dim in (16, 64, 80, 96, 128):
        CacheConfig(middle=Middle.QUANTIZE, key=rotated).check_model(n_layers=2, head_dim=head_dim)
    turned = QuantConfig.parse("fp8+prerotary")
    for cache in (
        CacheConfig(middle=Middle.QUANTIZE, key=turned),
        CacheConfig(middle=Middle.QUANTIZE, overrides=(LayerOverride(1, turned, INT4),)),
    ):
        assert check(cache, in_cache_refusal="a reason") == "prerotary_refused"
        cache.check_model(n_layers=2, head_dim=80)
    CacheConfig(key=turned).check_model(n_layers=2, head_dim=80, in_cache_refusal="nothing is quantized")
    refused = CacheConfig(middle=Middle.EVICT, position=Position.IN_CACHE)
    assert check(refused, in_cache_refusal="a reason") == "in_cache_refused"
    refused.check_model(n_layers=2, head_dim=80)
    CacheConfig(key=token).check_model(n_layers=2, head_dim=80)  # nothing is quantized, so nothing is wrong


def test_json_round_trip():
    override = LayerOverride(3, QuantConfig.parse("fp8"), QuantConfig())
    cache = CacheConfig(
        2, 7, Middle.QUANTIZE, 32, INT4, QuantConfig.parse("int2:token:g16:absmax:m32"), Position.IN_CACHE,
        Offload.HOST, Prefill.EXACT, (override,),
    )  # fmt: skip
    run = RunConfig("a prompt", cache, "label", False, 9, SamplingConfig(0.7, 0.9, 4), 33)
    plain = json.loads(json.dumps(run.to_dict()))
    assert RunConfig.from_dict(plain) == run
    assert CacheConfig.from_dict({}) == CacheConfig()
    assert cache.side(3, "key").spec == "fp8"
    assert cache.side(3, "value").is_none
    assert cache.side(2, "key") == INT4
    assert code(lambda: CacheConfig.from_dict({"sinks": 4})) == "unknown_field"
    assert code(lambda: CacheConfig.from_dict({"middle": "drop"})) == "unknown_choice"
    assert parse_choice("middle", "evict", Middle) is Middle.EVICT


def test_settings_are_frozen_and_cross_processes():
    config = CacheConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.sink_size = 5
    assert pickle.loads(pickle.dumps(config)) == config
    error = ConfigError("quant_bits", bits=3)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.values) == (ConfigError, str(error), {"bits": 3})
