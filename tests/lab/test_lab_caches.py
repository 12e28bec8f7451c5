"""Named caches side by side: bytes are the ledger's and the formula's, losses the engine's score."""

from __future__ import annotations

import pytest

from kvviz import calculator
from kvviz.calculator import ModelShape
from kvviz.config import CacheConfig, Middle
from kvviz.engine import Corpus, score
from kvviz.errors import ConfigError
from kvviz.figures.lab import lab_panels
from kvviz.figures.lab_caches import bits_by_part, byte_bands
from kvviz.lab import perform
from kvviz.lab.bench import Bench
from kvviz.lab.caches import CACHES, cache, cache_label

TEXT = Corpus("words", "some words, and some other words; " * 60, "0" * 64)
SETTINGS = {"caches": list(CACHES), "window": 16, "kept": 60, "start": 0, "length": 240, "skip": 120}


@pytest.fixture(scope="module")
def model(tiny):
    return tiny(context=1024)


@pytest.fixture(scope="module")
def found(model):
    *_, result = perform(model, "caches", SETTINGS, corpus=TEXT)
    return result


def rows_of(result):
    main = result.tables["caches"]
    keys = [column.key for column in main.columns]
    return dict(
        zip(result.marks["names"], (dict(zip(keys, row, strict=True)) for row in main.rows), strict=True)
    )


def test_bytes_are_those_of_the_formula(model, found):
    facts = model.facts
    shape = ModelShape("t", facts.n_layers, facts.n_heads, facts.n_kv_heads, facts.head_dim, 1024, 0)
    rows = rows_of(found)
    assert list(rows) == list(CACHES)
    for name, row in rows.items():
        config = CacheConfig.from_dict(found.configurations[cache_label(name)])
        computed = calculator.kv_bytes(shape, config, 240, facts.dtype_bytes)
        assert row["cache_bytes"] == computed.total_bytes
        assert row["device_bytes"] == computed.bytes_on("device")
        assert row["host_bytes"] == computed.bytes_on("host")
        assert row["pair_bits"] == pytest.approx(computed.effective_bits)
        assert row["cache_bits"] == pytest.approx(computed.cache_bits)
        assert row["of_full"] == row["cache_bytes"] / found.marks["full_bytes"]
    assert found.marks["full_bytes"] == rows["full"]["cache_bytes"]


def test_losses_are_the_score_s(model, found):
    ids = Bench(model, TEXT).text(0, 240)
    for name in ("sinks", "k8v4", "kivi-2"):
        expected = score(model, ids, cache(name, SETTINGS, model.facts.head_dim), skip=120)
        row = rows_of(found)[name]
        assert row["kl"] == pytest.approx(expected.kl, rel=1e-6)
        assert row["top1"] == pytest.approx(expected.top1)
    assert rows_of(found)["full"]["kl"] == 0


def test_offload_moves_and_changes_nothing(found):
    rows = rows_of(found)
    kept, moved = rows["k8v4"], rows["k8v4-host"]
    assert moved["cache_bytes"] == kept["cache_bytes"]
    assert moved["host_bytes"] > 0
    assert (moved["kl"], moved["ppl"], moved["top1"]) == (kept["kl"], kept["ppl"], kept["top1"])


def test_evicting_caches_hold_the_same_number_of_tokens():
    for name, sinks in (("window", 0), ("sinks", 4)):
        config = cache(name, SETTINGS, 16)
        assert config.middle is Middle.EVICT
        assert (config.sink_size, config.sink_size + config.window_size) == (sinks, 60)


def test_bars_add_up_to_the_ledger(found):
    totals = [sum(band[3][i] for band in byte_bands(found)) for i in range(len(CACHES))]
    assert totals == found.tables["caches"].column("cache_bytes")
    parts = bits_by_part(found)
    sealing = [row["pair_bits"] for row in rows_of(found).values() if row["pair_bits"]]
    sums = [sum(bits[i] for bits in parts.values()) for i in range(len(sealing))]
    assert sums == pytest.approx(sealing)
    assert set(parts) == {"codes", "scales", "minima"}


def test_figures_and_finding(found):
    assert [panel.key for panel in lab_panels(found)] == ["bytes", "bits", "loss"]
    assert all(cache_label(name) in found.finding for name in CACHES)
    loss = lab_panels(found)[2].payload["data"][0]
    assert len(loss["customdata"]) == len(CACHES) - 1, "full precision loses nothing and has no point"


def test_nothing_sealed_has_no_bits(model):
    *_, result = perform(model, "caches", {**SETTINGS, "caches": ["full", "window"]}, corpus=TEXT)
    assert [panel.key for panel in lab_panels(result)] == ["bytes", "loss"]


@pytest.mark.parametrize(
    "given", [{"skip": 239}, {"length": 5000}, {"caches": []}, {"caches": ["poetry"]}, {"kept": 4}]
)
def test_what_cannot_be_measured_is_refused_before_anything_runs(model, given):
    with pytest.raises(ConfigError):
        perform(model, "caches", {**SETTINGS, **given}, corpus=TEXT)
