"""The values view: the numbers of the oracle on exact keys, and a channel of +600 that nobody can miss."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from kvviz.config import CacheConfig
from kvviz.engine import Corpus
from kvviz.errors import KvvizError
from kvviz.experiment import LabResult
from kvviz.figures.lab import lab_panels
from kvviz.lab import perform
from kvviz.models.tiny import tiny_model
from kvviz.ui.lab_views import plots
from tests.oracles.quant_oracle import quantize, walsh

TEXT = Corpus("words", "some words, and some other words; " * 30, "0" * 64)
SMALL = {"start": 5, "length": 200, "quantizer": "int4:token:g16:minmax", "layer": 1, "head": 1}


def result_of(model, **given) -> LabResult:
    *_, result = perform(model, "values", {**SMALL, **given}, corpus=TEXT)
    assert isinstance(result, LabResult)
    return result


def exact(model, side: str, layer: int = 1) -> np.ndarray:
    """Whole blocks behind the sinks, ``(H_kv, 192, D)``, of a plain reading."""
    session = model.new_session(CacheConfig())
    model.forward(model.encode(TEXT.text, False)[5:205], session, last_only=True)
    return session.layers[layer].exact(side)[0, :, 4:196].numpy()


@pytest.mark.parametrize("side", ["key", "value"])
@pytest.mark.parametrize("spec", ["int4:token:g16:minmax", "int3:channel:g32:absmax", "nf4:head", "fp8"])
def test_every_number_is_the_oracle_s(tiny, side, spec):
    model = tiny()
    result = result_of(model, side=side, quantizer=spec, block=1)
    x = exact(model, side)
    coded = quantize(x, spec, 64)
    shown, arrays = (1, slice(64, 128)), result.arrays
    np.testing.assert_allclose(arrays["value"], x[shown], rtol=1e-6)
    np.testing.assert_allclose(arrays["restored"], coded.restored[shown], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(arrays["decoded"], coded.restored[shown], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(arrays["code"], coded.codes[shown] + (3 if "absmax" in spec else 0))
    assert result.marks["first"] == 68
    error = np.abs(coded.restored - x)[1]
    np.testing.assert_allclose(arrays["channel_error"], error.max(0), rtol=1e-6)
    np.testing.assert_allclose(arrays["channel_max"][0], np.abs(x[1]).max(0))
    relative = np.sqrt((error**2).sum() / (x[1] ** 2).sum())
    assert result.tables["values_summary"].column("relative_error")[0] == pytest.approx(relative, rel=1e-6)
    assert arrays["bin_counts"].sum() == arrays["level_counts"].sum() == x[1].size
    taken = np.unique(coded.codes[1], return_counts=True)[1]
    if spec != "fp8":  # two zeros
        np.testing.assert_array_equal(arrays["level_counts"][arrays["level_counts"] > 0], taken)
    assert result.settings["quantizer"] == spec


def test_a_channel_of_600_is_shown_and_not_averaged_away(tiny):
    """A key bias as Qwen2's: one channel far above all others, in a model that is otherwise as it was."""
    model = tiny_model("qwen2")
    attention = model.network.base_model.layers[1].self_attn
    with torch.no_grad():
        attention.k_proj.bias[16 + 15] = 600.0  # KV head 1; rotary shares it with channel 7
    result = result_of(model)
    outliers = result.marks["outliers"][0]
    assert outliers == [7, 15]
    arrays = result.arrays
    assert 590 < arrays["channel_max"][0][[7, 15]].max() < 610
    summary = result.tables["values_summary"]
    whole, found, others = summary.column("relative_error")
    assert summary.column("n_channels") == [16, 2, 14]
    assert found < whole < 0.1 < 0.5 < others  # the mean alone would look well
    assert f"{100 * others:.1f} %" in result.finding
    assert "channel 15 reaches 603.1" in result.finding
    # in the drawing: the column is there at full size, and so are the marks
    drawn, channels, _ = lab_panels(result)
    assert drawn.payload["data"][0]["z"]["shape"] == "64, 16"
    named = {trace["name"]: trace for trace in channels.payload["data"]}
    assert list(named["outlier channel"]["x"]) == [7, 15]
    by_channel = result_of(model, quantizer="int4:channel:g32:minmax").tables["values_summary"]
    assert by_channel.column("relative_error")[-1] < 0.2 < others / 3


def test_before_and_after_the_transform_and_the_unrotation():
    model = tiny_model("qwen2")
    with torch.no_grad():
        model.network.base_model.layers[1].self_attn.k_proj.bias[16 + 15] = 600.0
    x = exact(model, "key")
    turned = result_of(model, quantizer="int4:token:g16:absmax+hadamard")
    np.testing.assert_allclose(turned.arrays["given"], (x @ walsh(16))[1, :64], rtol=1e-5, atol=1e-4)
    assert turned.marks["changed"]
    assert turned.marks["outliers"][1] == []
    assert turned.arrays["channel_max"][1].max() < 0.5 * turned.arrays["channel_max"][0].max()
    assert len(lab_panels(turned)[0].payload["data"]) == 2
    unrotated = result_of(model, quantizer="int4:channel:g32:minmax+prerotary")
    given, value = unrotated.arrays["given"], unrotated.arrays["value"]
    assert unrotated.marks["outliers"][1] == [15]  # the pair that rotary shared is one channel again
    np.testing.assert_allclose(np.linalg.norm(given, axis=1), np.linalg.norm(value, axis=1), rtol=1e-5)
    assert (
        np.abs(unrotated.arrays["restored"] - value).max()
        <= 1.5 * np.abs(unrotated.arrays["decoded"] - given).max()
    )


def test_outliers_are_marked_as_stored(tiny):
    result = result_of(tiny(), quantizer="int3:token:g16:absmax+outliers5")
    assert result.arrays["kept"].sum() == 64  # one of 16 in each group
    kept = result.arrays["kept"].astype(bool)
    np.testing.assert_allclose(result.arrays["restored"][kept], result.arrays["value"][kept], rtol=1e-6)


def test_a_frame_for_the_browser_stays_small():
    """head_dim 64 with both maps: what a default model sends."""
    model = tiny_model(head_dim=64)
    result = result_of(model, quantizer="int4:token:g64:absmax+hadamard")
    size = sum(len(str(plot)) for plot in plots(result))
    assert result.arrays["value"].shape == (64, 64)
    assert size < 200_000
    wide = result_of(tiny_model(head_dim=128), quantizer="fp8+hadamard")
    assert wide.arrays["value"].shape == (32, 128)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"layer": 2}, "range"),
        ({"head": 2}, "range"),
        ({"block": 3}, "range"),
        ({"quantizer": "none"}, "lab_none_coded"),
        ({"quantizer": "int4:token:g16:absmax+static"}, "calibration_missing"),
        ({"quantizer": "int4:token:g64:absmax"}, "quant_group"),
        ({"side": "value", "quantizer": "fp8+prerotary"}, "prerotary_value"),
        ({"length": 67}, "lab_no_block"),
        ({"length": 600}, "context_exceeded"),
        ({"start": 100_000}, "text_slice"),
    ],
)
def test_refused_before_anything_is_read(tiny, given, code):
    with pytest.raises(KvvizError) as refusal:
        perform(tiny(), "values", {**SMALL, **given}, corpus=TEXT)
    assert refusal.value.code == code


def test_exports(tiny):
    result = result_of(tiny())
    lines = result.to_csv()["values-values_channels.csv"].splitlines()
    assert len(lines) == 17
    assert dataclasses.asdict(result.model)["name"] in result.to_json()
