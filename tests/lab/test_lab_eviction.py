"""Eviction: the numbers of the score, the curves' own arithmetic, refusals, and the reference table."""

from __future__ import annotations

import json
import math
import threading

import numpy as np
import pytest

from kvviz.config import CacheConfig, Middle
from kvviz.engine import Corpus, score
from kvviz.errors import KvvizError
from kvviz.experiment import LabProgress, LabResult
from kvviz.lab import perform

TEXT = Corpus("words", "some words, and some other words; " * 30, "0" * 64)
SMALL = {"budget": 20, "start": 5, "length": 90, "skip": 30, "rolling": 8}


def result_of(model, given, corpus=TEXT) -> tuple[list[LabProgress], LabResult]:
    *progress, result = perform(model, "eviction", given, corpus=corpus)
    assert isinstance(result, LabResult)
    return progress, result


def test_every_number_is_the_score_s(tiny):
    model = tiny()
    progress, result = result_of(model, SMALL)
    assert [p.done for p in progress] == [90 * n for n in range(7)]
    assert progress[-1].done == progress[-1].total
    main = result.tables["configurations"]
    assert main.column("sinks") == [None, 0, 1, 2, 4, 8]
    assert main.column("window") == [None, 20, 19, 18, 16, 12]
    ids = model.encode(TEXT.text, False)[5:95]
    for place in (1, 4):
        row = dict(zip([c.key for c in main.columns], main.rows[place], strict=True))
        config = CacheConfig(row["sinks"], row["window"], Middle.EVICT)
        expected = score(model, ids, config, skip=30)
        assert row["ppl"] == pytest.approx(expected.ppl, rel=1e-9)
        assert row["kl"] == pytest.approx(expected.kl, rel=1e-9)
        assert row["kl"] > 1e-3
        assert row["top1"] == pytest.approx(expected.top1)
        assert row["cache_bytes"] == expected.memory.used_bytes
        assert main.rows[0][3] == pytest.approx(expected.ppl_full, rel=1e-9)
    assert main.rows[0][4:6] == (0.0, 1.0)


def test_curves_begin_alike_and_part_where_the_first_token_leaves(tiny):
    _, result = result_of(tiny(), SMALL)
    nll, rolling = result.arrays["nll"], result.arrays["rolling_nll"]
    assert nll.shape == rolling.shape == (6, 89)
    assert result.marks["leaves_at"] == 20
    np.testing.assert_allclose(nll[1:, :20], nll[:1, :20].repeat(5, 0), rtol=1e-9)
    assert abs(nll[1, 20] - nll[0, 20]) > 1e-6  # the window alone misses token 0 from row 20 on
    np.testing.assert_allclose(rolling[:, 0], nll[:, 0])
    np.testing.assert_allclose(rolling[:, 50], nll[:, 43:51].mean(1))
    after = result.tables["configurations"].column("nll_after")
    np.testing.assert_allclose(after, nll[:, 20:].mean(1))


def test_exports_and_a_text_too_short_to_evict_anything(tiny):
    _, result = result_of(tiny(), {**SMALL, "length": 15, "skip": 3, "sinks": ["0", "4"]})
    plain = json.loads(result.to_json())
    assert [row["nll_after"] for row in plain["tables"]["configurations"]] == [None] * 3
    ppl = result.tables["configurations"].column("ppl")
    assert ppl == pytest.approx([ppl[0]] * 3, rel=1e-9)
    assert "15" in result.finding
    assert np.isfinite(result.arrays["rolling_nll"]).all()
    lines = result.to_csv()["eviction-configurations.csv"].splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("configuration,sinks,window,ppl,kl,top1")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"budget": 8}, "lab_budget"),
        ({"sinks": []}, "choose_one"),
        ({"skip": 89}, "score_skip"),
        ({"length": 600}, "lab_context"),
        ({"start": 100_000}, "text_slice"),
        ({"sinks": ["3"]}, "unknown_choice"),
        ({"budget": 1}, "whole_range"),
    ],
)
def test_refused_before_anything_is_read(tiny, given, code):
    with pytest.raises(KvvizError) as refusal:
        perform(tiny(), "eviction", {**SMALL, **given}, corpus=TEXT)
    assert refusal.value.code == code


def test_stopped_between_two_pieces(tiny):
    stop = threading.Event()
    steps = perform(tiny(), "eviction", SMALL, corpus=TEXT, stop=stop)
    next(steps)
    assert next(steps).done == 90
    stop.set()
    with pytest.raises(KvvizError) as stopped:
        next(steps)
    assert stopped.value.code == "lab_stopped"


@pytest.mark.real
@pytest.mark.timeout(600)
def test_collapse_and_repair_are_the_reference_table_s(default_model):
    *_, result = perform(default_model, "eviction", {"sinks": ["0", "4"]})
    main = result.tables["configurations"]
    print(main.to_csv(), result.elapsed_ms)  # noqa: T201
    if not result.text_sha256.startswith("71f2ff5d99bdc1f9"):
        pytest.skip("another Python, another text")
    expected = [(11.7102, 0, 1), (22.5073, 0.68217, 0.6059), (12.6713, 0.06950, 0.8906)]
    for row, (ppl, kl, top1) in zip(main.rows, expected, strict=True):
        assert row[3] == pytest.approx(ppl, rel=5e-4)
        assert row[4] == pytest.approx(kl, rel=0.05, abs=5e-5)
        assert row[5] == pytest.approx(top1, abs=0.003)
    rolling = result.arrays["rolling_nll"]
    worse = rolling - rolling[0]
    assert np.abs(worse[:, :260]).max() < 1e-3  # alike until the first token leaves
    assert worse[1, 400:].mean() > 5 * worse[2, 400:].mean() > 0
    assert math.log(main.rows[1][3] / main.rows[0][3]) > 0.6
    assert "22.51" in result.finding
