"""Memory data against hand-counted bytes, and the figure's frame."""

import base64
import json

import numpy as np

from kvviz.events import sum_bytes
from kvviz.figures.memory import memory_bars, memory_curve, memory_figure
from kvviz.record import RunRecord
from tests.builders import EVICT, FULL, make_facts, make_record

PER_TOKEN = 2 * 2 * 2 * 16  # numbers of K and V: L = 2, H_kv = 2, D = 16


def test_bands_sum_to_the_measured_bytes_at_every_step():
    record = make_record(8, 6)
    curve = memory_curve(0, record)
    assert curve is not None
    assert curve.tokens.tolist() == [8, 9, 10, 11, 12, 13]
    total = sum(band.used for band in curve.bands)
    assert total.tolist() == [sum_bytes(m.used) for m in record.memory]


def test_bands_are_tier_part_and_location():
    curve = memory_curve(0, make_record(8, 1))  # 2 sinks, 1 sealed block of 2, 1 exact, 3 in the window
    assert curve is not None
    found = {(b.tier, b.part, b.location): int(b.used[0]) for b in curve.bands}
    sealed = 2 * PER_TOKEN
    assert found == {
        ("sink", "exact", "device"): 2 * PER_TOKEN * 4,
        ("window", "exact", "device"): 3 * PER_TOKEN * 4,
        ("exact", "exact", "device"): 1 * PER_TOKEN * 4,
        ("offloaded", "codes", "host"): sealed // 2 + sealed // 4,
        ("offloaded", "metadata", "host"): sealed // 2 // 16 * 2 * 3,  # K scales, V scales, V minima
    }


def test_outliers_and_their_places_are_a_band_of_their_own():
    record = make_record(8, 1)
    parts = record.memory[-1].used["host"]["offloaded"]
    parts |= {"outliers": 40, "outlier_places": 10}
    curve = memory_curve(0, record)
    assert curve is not None
    found = {(b.tier, b.part): int(b.used[-1]) for b in curve.bands}
    assert found["offloaded", "outliers"] == 50
    assert sum(found.values()) == sum_bytes(record.memory[-1].used)
    names = [trace["name"] for trace in memory_figure([record])["data"]]
    assert "offloaded: outliers and their places (host)" in names


def test_full_precision_lines_are_the_formula():
    curve = memory_curve(0, make_record(8, 2))
    assert curve is not None
    np.testing.assert_array_equal(curve.full_16bit, [8 * PER_TOKEN * 2, 9 * PER_TOKEN * 2])
    np.testing.assert_array_equal(curve.full_own, [8 * PER_TOKEN * 4, 9 * PER_TOKEN * 4])


def test_bar_ratios_are_against_16_bit_and_the_own_dtype():
    (bar,) = memory_bars([make_record(8, 3, cache=FULL)])
    assert bar.tokens == 10
    assert bar.used_bytes == 10 * PER_TOKEN * 4
    assert (bar.ratio_16bit, bar.ratio_own) == (0.5, 1.0)
    assert bar.effective_bits is None
    assert bar.cache_bits == 32
    assert bar.by_tier["sink"] == {"exact": {"device": 2 * PER_TOKEN * 4}}


def test_evicted_tokens_weigh_nothing():
    (bar,) = memory_bars([make_record(20, 1, cache=EVICT)])
    assert bar.used_bytes == 5 * PER_TOKEN * 4
    assert bar.ratio_own == 4


def test_figure_draws_runs_on_one_scale_with_host_hatched_and_computed_lines():
    payload = memory_figure([make_record(8, 6, cache=FULL), make_record(8, 6)])
    layout = payload["layout"]
    assert layout["height"] > 0
    assert layout["uirevision"] == "memory"
    assert layout["yaxis2"]["matches"] == "y"
    hatched = [t["name"] for t in payload["data"] if t.get("fillpattern")]
    assert hatched == ["offloaded: codes (host)", "offloaded: scales and minima (host)"]
    computed = {t["name"] for t in payload["data"] if t.get("legend") == "legend2"}
    assert computed == {
        "full precision, 16-bit: 2·L·H_kv·D·T·2 (computed)",
        "full precision, float32: 2·L·H_kv·D·T·4 (computed)",
    }
    shown = [t["name"] for t in payload["data"] if t["showlegend"]]
    assert len(shown) == len(set(shown))


def test_a_16_bit_run_has_one_computed_line():
    payload = memory_figure([make_record(8, 3, facts=make_facts(dtype_bytes=2))])
    assert sum(t.get("legend") == "legend2" for t in payload["data"]) == 1


def test_one_snapshot_is_drawn_one_token_wide_and_hover_tells_its_token():
    trace = memory_figure([make_record(8, 1, end=None)])["data"][0]
    assert np.frombuffer(_decode(trace["x"]), dtype="f8").tolist() == [7.5, 8.5]
    hover = np.frombuffer(_decode(trace["customdata"]), dtype="f8").reshape(2, 2)
    assert hover.tolist() == [[8, 2 * PER_TOKEN * 4]] * 2


def test_names_are_escaped_and_a_run_without_numbers_keeps_its_place():
    payload = memory_figure([make_record(8, 3, label="<img src=x onerror=1>"), make_record(8, 0, end=None)])
    texts = json.dumps(payload["layout"]["annotations"])
    assert "&lt;img" in texts
    assert "<img" not in texts
    assert "xaxis2" in payload["layout"]


def test_no_run_gives_a_sentence():
    for records in ([], [RunRecord()], [make_record(8, 0, end="failed"), RunRecord()]):
        payload = memory_figure(records)
        assert payload["data"] == []
        assert payload["layout"]["annotations"][0]["text"]


def _decode(spec: dict) -> bytes:

    return base64.b64decode(spec["bdata"])
