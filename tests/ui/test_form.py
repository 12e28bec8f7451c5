"""Fields and settings are the same thing written twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvviz.config import CacheConfig, LayerOverride, Middle
from kvviz.errors import KvvizError
from kvviz.presets import preset, preset_label, preset_names
from kvviz.quant_config import QuantConfig
from kvviz.ui import form
from kvviz.ui.context import Presets

PRESETS = Presets(preset_names(), preset_label, preset)
REQUEST: dict[str, Any] = {
    "prompt": "Hello", "use_chat_template": True, "max_new_tokens": 8, "decoding": "greedy",
    "temperature": 0.8, "top_p": 0.95, "seed": 3,
}  # fmt: skip


def changed(cache: CacheConfig, **fields: Any) -> list[Any]:
    """The fields of ``cache`` after a person changed some."""
    values = dict(zip(form.CACHE_FIELDS, form.cache_fields(cache), strict=True)) | fields
    return [values[name] for name in form.CACHE_FIELDS]


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_survives_the_form(name: str) -> None:
    assert form.read_cache(form.cache_fields(preset(name))) == preset(name)


@pytest.mark.parametrize("name", preset_names())
def test_untouched_fields_keep_the_presets_name(name: str) -> None:
    assert form.describe(name, form.cache_fields(preset(name)), PRESETS) == preset_label(name)


def test_a_changed_field_is_called_custom() -> None:
    values = changed(preset("full-stack"), window_size=preset("full-stack").window_size + 1)
    words = form.describe("full-stack", values, PRESETS)
    assert words.startswith("custom")
    assert preset_label("full-stack") in words


def test_every_field_of_the_settings_is_on_the_form() -> None:
    assert set(form.CACHE_FIELDS) == set(CacheConfig.__dataclass_fields__)


def test_overrides_survive_the_form() -> None:
    override = LayerOverride(3, QuantConfig.parse("int8:token:g64:absmax"), QuantConfig.parse("none"))
    cache = replace(preset("full-stack"), overrides=(override,))
    assert form.read_cache(form.cache_fields(cache)) == cache


@pytest.mark.parametrize("written", ["nonsense", "x: none / none", "1: none", "1 none/none", "-1: none/none"])
def test_an_unreadable_override_is_quoted(written: str) -> None:
    with pytest.raises(KvvizError, match="is not an override"):
        form.read_overrides(written)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("window_size", 0, "window_size must be a whole number of at least 1"),
        ("window_size", None, "window_size must be a whole number"),
        ("window_size", -1, "at least 1"),
        ("window_size", 2.5, "2.5"),
        ("block_size", 0, "block_size"),
        ("sink_size", -1, "sink_size"),
        ("key", "int5:token:g64:absmax", "2, 3, 4 or 8 bits"),
        ("value", "", "not a quantizer"),
        ("middle", "shrink", "keep, evict, quantize"),
    ],
)
def test_a_bad_field_is_one_sentence(field: str, value: Any, said: str) -> None:
    values = changed(preset("full-stack"), **{field: value})
    with pytest.raises(KvvizError, match=said) as caught:
        form.read_request(
            REQUEST, [("full", form.cache_fields(preset("full"))), ("full-stack", values)], PRESETS
        )
    assert "\n" not in str(caught.value)
    assert "B" in str(caught.value).split(":")[0], "the sentence says which configuration"


def test_greedy_ignores_the_sampling_fields() -> None:
    sides = [(name, form.cache_fields(preset(name))) for name in ("full", "full-stack")]
    empty = REQUEST | {"temperature": None, "top_p": None, "seed": None}
    runs = form.read_request(empty, sides, PRESETS)
    assert [run.sampling.temperature for run in runs] == [0.0, 0.0]
    assert [run.label for run in runs] == [preset_label("full"), preset_label("full-stack")]


def test_sampling_reaches_both_runs_alike() -> None:
    sides = [(name, form.cache_fields(preset(name))) for name in ("full", "full-stack")]
    runs = form.read_request(REQUEST | {"decoding": "sampled"}, sides, PRESETS)
    assert runs[0].sampling == runs[1].sampling
    assert (runs[0].sampling.temperature, runs[0].sampling.top_p, runs[0].sampling.seed) == (0.8, 0.95, 3)


@pytest.mark.parametrize("field", ["temperature", "top_p", "seed"])
def test_an_empty_sampling_field_is_one_sentence(field: str) -> None:
    sides = [(name, form.cache_fields(preset(name))) for name in ("full", "full-stack")]
    with pytest.raises(KvvizError, match=field):
        form.read_request(REQUEST | {"decoding": "sampled", field: None}, sides, PRESETS)


@pytest.mark.parametrize("head_dim", [24, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("block_size", [64, 48, 7, None])
@pytest.mark.parametrize("side", ["key", "value"])
def test_offered_quantizers_fit(head_dim: int, block_size: int | None, side: str) -> None:
    specs = form.quantizer_choices(head_dim, block_size, side)
    assert specs[0] == "none"
    assert len(specs) == len(set(specs))
    for spec in specs:
        CacheConfig(
            middle=Middle.QUANTIZE, block_size=block_size or 64, **{side: QuantConfig.parse(spec)}
        ).check_model(n_layers=1, head_dim=head_dim)


def test_every_scheme_is_offered() -> None:
    assert len(form.quantizer_choices(64, 64)) < 45
    keys, values = (set(form.quantizer_choices(64, 64, side)) for side in ("key", "value"))
    assert keys - values == {"int4:channel:g64:minmax+prerotary"}
    assert values >= {
        "int3:token:g64:minmax", "int3:channel:g64:minmax", "nf4:token:g64",
        "int4:token:g64:minmax+outliers1", "int4:token:g64:minmax+hadamard",
    }  # fmt: skip


def test_offered_quantizers_hold_those_of_the_presets() -> None:
    for name in preset_names():
        cache = preset(name)
        if cache.middle is Middle.QUANTIZE:
            offered = form.quantizer_choices(64, cache.block_size)
            assert {cache.key.spec, cache.value.spec} <= set(offered), name
