"""K or V, and one layer at a time: every number is the engine's score of that very cache."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kvviz.catalogue import keys
from kvviz.config import CacheConfig, LayerOverride, Middle
from kvviz.engine import Corpus, score
from kvviz.errors import ConfigError
from kvviz.figures.lab import lab_panels
from kvviz.lab import perform
from kvviz.lab.bench import Bench
from kvviz.quant_config import QuantConfig

TEXT = Corpus("words", "some words, and some other words; " * 60, "0" * 64)
SMALL = {"start": 0, "length": 300, "skip": 240}
SHORT = {"length": 448, "skip": 256}


@pytest.fixture(scope="module")
def model(tiny):
    return tiny(context=1024)


def rows_of(result, name):
    main = result.tables[name]
    return [dict(zip([c.key for c in main.columns], row, strict=True)) for row in main.rows]


@pytest.mark.parametrize("axis", ["token", "channel"])
def test_few_bits_on_one_side_at_a_time(model, axis):
    *progress, result = perform(model, "key-or-value", {**SMALL, "axis": axis, "bits": "3"}, corpus=TEXT)
    assert progress[-1].done == progress[-1].total == 5 * 300
    low = f"int3:{axis}:g{16 if axis == 'token' else 64}:minmax"
    many, low_value = "int8:token:g16:absmax", "int3:token:g16:minmax"
    pairs = [(many, many), (many, low_value), (low, many), (low, low_value)]
    rows = rows_of(result, "key-or-value")
    ids = Bench(model, TEXT).text(0, 300)
    for row, (key, value) in zip(rows, pairs, strict=True):
        assert (row["pair_key"], row["pair_value"]) == (key, value)
        cache = CacheConfig(4, 128, Middle.QUANTIZE, 64, QuantConfig.parse(key), QuantConfig.parse(value))
        expected = score(model, ids, cache, skip=240)
        assert row["kl"] == pytest.approx(expected.kl, rel=1e-6)
        assert row["pair_bits"] == expected.memory.effective_bits
        assert result.configurations[row["scheme_name"]] == cache.to_dict()
    verdict = "in the values" if rows[1]["kl"] > rows[2]["kl"] else "in the keys"
    assert verdict in result.finding
    bars = json.loads(json.dumps(lab_panels(result)[0].payload))["data"][0]
    assert bars["x"] == [row["scheme_name"] for row in rows]


@pytest.mark.parametrize("side", ["both", "key"])
def test_one_layer_at_a_time(model, side):
    quantizers = {"key": "int2:channel:g32:minmax", "value": "int2:token:g16:minmax"}
    *progress, result = perform(
        model, "first-layer", {**SMALL, **quantizers, "side": side, "layers": 30}, corpus=TEXT
    )
    assert progress[-1].done == progress[-1].total == 31 * 300
    rows = rows_of(result, "first-layer")
    assert [row["layer"] for row in rows] == list(range(model.facts.n_layers))
    ids = Bench(model, TEXT).text(0, 300)
    key, value = (QuantConfig.parse(spec) for spec in quantizers.values())
    for row in rows:
        override = LayerOverride(row["layer"], key, value if side == "both" else QuantConfig())
        expected = score(model, ids, CacheConfig(4, 64, Middle.QUANTIZE, 64, overrides=(override,)), skip=240)
        assert row["kl"] == pytest.approx(expected.kl, rel=1e-6)
        assert row["kl"] > 0
        for name in ("key", "value"):  # of this layer alone: the others sealed theirs exactly
            signal, error = (getattr(expected.seal_error, f"{name}_{kind}") for kind in ("signal", "error"))
            assert np.count_nonzero(error.sum((1, 2))) == (name == "key" or side == "both")
            own = np.sqrt(error[row["layer"]].sum() / signal[row["layer"]].sum())
            if name == "key" or side == "both":
                assert row[f"{name}_error"] == pytest.approx(own, rel=1e-9)
                assert own > 0.1
            else:
                assert row[f"{name}_error"] is None
    worst = max(rows, key=lambda row: row["kl"])
    assert f"lost in layer {worst['layer']} " in result.finding
    first, second = lab_panels(result)
    assert (first.key, second.key) == ("damage", "errors")
    assert len(json.loads(json.dumps(second.payload))["data"]) == (2 if side == "both" else 1)
    assert second.payload["layout"]["xaxis"]["dtick"] == 1  # two layers: no ticks between whole ones
    np.testing.assert_array_equal(result.arrays["kl"], [row["kl"] for row in rows])


def test_refusals_and_words(model):
    for name, given in [
        ("key-or-value", {"skip": 299}),
        ("key-or-value", {"length": 150, "skip": 10}),
        ("key-or-value", {"bits": "5"}),
        ("first-layer", {"key": "int4:token:g7:minmax+x"}),
        ("first-layer", {"length": 5000}),
        ("first-layer", {"side": "q"}),
    ]:
        with pytest.raises(ConfigError):
            perform(model, name, {**SMALL, **given}, corpus=TEXT)
    for name in ("key-or-value", "first-layer"):
        assert f"lab.table.{name}" in keys()


@pytest.mark.real
@pytest.mark.timeout(600)
def test_what_the_default_model_shows(default_model):
    """Keys need more than values; a scale by channel, exact sinks and a rotation help by token keys."""
    *_, swapped = perform(default_model, "key-or-value", SHORT)
    neither, value, key, both = (row["kl"] for row in rows_of(swapped, "key-or-value"))
    assert 0 < neither < value < key <= both * 1.05
    assert key > 1.5 * value
    names = ["int4-token", "int4-channel", "int4-hadamard", "int2-token", "int2-channel"]
    *_, found = perform(default_model, "quality", {"schemes": names, **SHORT})
    kl = dict(zip(names, (row["kl"] for row in rows_of(found, "quality")), strict=True))
    assert kl["int4-channel"] < kl["int4-token"] / 1.5
    assert kl["int2-channel"] < kl["int2-token"] / 1.5
    assert kl["int4-hadamard"] < kl["int4-token"]
    bare = {"schemes": names[:1], "sinks": 0, **SHORT}
    *_, unprotected = perform(default_model, "quality", bare)
    print(neither, value, key, both, kl, rows_of(unprotected, "quality")[0]["kl"])  # noqa: T201
    assert rows_of(unprotected, "quality")[0]["kl"] > 1.1 * kl["int4-token"]
