"""Presets say what their names promise, and each has its words and a model it fits."""

from __future__ import annotations

import pytest

from kvviz.config import CacheConfig, Middle, Offload
from kvviz.errors import ConfigError
from kvviz.presets import preset, preset_label, preset_names, preset_note, prompt_presets

NAMES = ["full", "window", "sinks-window", "int8", "int4-naive", "kivi-4", "kivi-2", "k8v4", "full-stack"]


def test_names_in_order():
    assert preset_names() == NAMES


@pytest.mark.parametrize(
    ("name", "sinks", "window", "block", "key", "value"),
    [
        ("int8", 4, 128, 64, "int8:token:g64:absmax", "int8:token:g64:absmax"),
        ("int4-naive", 0, 128, 64, "int4:token:g64:absmax", "int4:token:g64:absmax"),
        ("kivi-4", 0, 128, 32, "int4:channel:g32:minmax", "int4:token:g32:minmax"),
        ("kivi-2", 0, 128, 32, "int2:channel:g32:minmax", "int2:token:g32:minmax"),
        ("k8v4", 4, 128, 64, "int8:token:g64:absmax", "int4:token:g64:absmax"),
        ("full-stack", 4, 128, 64, "int8:token:g64:absmax", "int4:token:g64:absmax"),
    ],
)
def test_quantizing_presets(name, sinks, window, block, key, value):
    cache = preset(name)
    assert cache.middle is Middle.QUANTIZE
    assert (cache.sink_size, cache.window_size, cache.block_size) == (sinks, window, block)
    assert (cache.key.spec, cache.value.spec) == (key, value)
    assert cache.offload == (Offload.HOST if name == "full-stack" else Offload.NONE)


def test_full_keeps_everything():
    assert preset("full").middle is Middle.KEEP


def test_evicting_presets_have_equal_budgets():
    window, sinks = preset("window"), preset("sinks-window")
    assert window.middle is sinks.middle is Middle.EVICT
    assert (window.sink_size, window.window_size) == (0, 132)
    assert (sinks.sink_size, sinks.window_size) == (4, 128)


def test_full_stack_is_k8v4_offloaded():
    assert preset("full-stack").to_dict() == preset("k8v4").to_dict() | {"offload": "host"}


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_has_words_and_fits_the_default_shape(name):
    cache = preset(name)
    cache.check_model(n_layers=30, head_dim=64)
    assert CacheConfig.from_dict(cache.to_dict()) == cache
    assert preset_label(name)
    assert preset_note(name)[-1] in ".?"


def test_unknown_preset_lists_those_that_exist():
    with pytest.raises(ConfigError) as caught:
        preset("fullstack")
    assert "fullstack" in str(caught.value)
    assert all(name in str(caught.value) for name in NAMES)


def test_prompts():
    prompts = {prompt.key: prompt for prompt in prompt_presets()}
    assert set(prompts) == {"question", "document", "code", "chinese"}
    assert {key for key, prompt in prompts.items() if not prompt.use_chat_template} == {"code"}
    assert all(prompt.label and prompt.text for prompt in prompts.values())


def test_the_fact_lies_in_the_middle_of_the_long_document():
    document = next(prompt.text for prompt in prompt_presets() if prompt.key == "document")
    assert 900 <= len(document.split()) <= 1200
    assert document.count("4172") == 1
    assert 0.3 < document.index("4172") / len(document) < 0.7
    assert document.rstrip().endswith("Answer in one short sentence.")
