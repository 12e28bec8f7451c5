"""Quality by scheme against the whole-matrix oracle; the front by its definition; refusals, exports."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.cache.calibrate import calibration_of
from kvviz.config import CacheConfig
from kvviz.engine import Corpus, score
from kvviz.errors import ConfigError
from kvviz.lab import perform
from kvviz.lab import quality as module
from kvviz.lab.bench import Bench
from kvviz.lab.quality import CALIBRATION_TOKENS, pareto_front, scheme_label
from kvviz.schemes import SCHEMES, schemes
from tests.engine.test_engine_score import figures
from tests.oracles.model_oracle import Rule, read_whole

TEXT = Corpus("words", "some words, and some other words; " * 90, "0" * 64)
SMALL = {"start": CALIBRATION_TOKENS, "length": 330, "skip": 250}
#: the oracle reads no codebooks
PLAIN = [scheme.name for scheme in SCHEMES if not scheme.needs_calibration]


def result_of(model, **given):
    *_, result = perform(model, "quality", {**SMALL, **given}, corpus=TEXT)
    return result


@pytest.fixture(scope="module")
def found(tiny):
    *progress, result = perform(tiny(context=2048), "quality", SMALL, corpus=TEXT)
    return progress, result


def test_every_scheme_is_the_oracle_s(tiny):
    model = tiny(context=2048)
    result = result_of(model, schemes=PLAIN)
    ids = Bench(model, TEXT).text(SMALL["start"], 330)
    full, _ = read_whole(model.network, ids, Rule())
    main = result.tables["quality"]
    for row, scheme in zip(main.rows, schemes(PLAIN), strict=True):
        key, value = (side.spec for side in scheme.sides(16, 64))
        logits, _ = read_whole(model.network, ids, Rule(4, 128, "quantize", 64, key, value))
        ppl, kl, top1 = figures(logits, full, ids, 250)
        got = dict(zip([column.key for column in main.columns], row, strict=True))
        assert (got["pair_key"], got["pair_value"]) == (key, value)
        assert got["ppl"] == pytest.approx(ppl, rel=1e-6)
        assert got["kl"] == pytest.approx(kl, rel=1e-4)
        assert got["top1"] == pytest.approx(top1, abs=1e-9)
        shift = (logits - full)[250:-1]
        spread = (shift - shift.mean(-1, keepdim=True)).square().mean().sqrt()
        assert got["logit_error"] == pytest.approx(float(spread), rel=1e-5)


def test_a_codebook_is_learnt_before_and_scored_as_the_engine_scores(tiny, found):
    model, (_, result) = tiny(context=2048), found
    bench = Bench(model, TEXT)
    label = scheme_label("nuq3")
    cache = CacheConfig.from_dict(result.configurations[label])
    session = model.new_session(CacheConfig())
    for _ in bench.read(bench.text(0, CALIBRATION_TOKENS), session):
        pass
    expected = score(
        model, bench.text(SMALL["start"], 330), cache, skip=250, calibration=calibration_of(session, cache)
    )
    row = dict(zip([c.key for c in result.tables["quality"].columns],
                   next(r for r in result.tables["quality"].rows if r[0] == label), strict=True))  # fmt: skip
    assert row["kl"] == pytest.approx(expected.kl, rel=1e-6)
    assert row["ppl"] == pytest.approx(expected.ppl, rel=1e-9)
    assert row["pair_ppl_change"] == pytest.approx(expected.ppl / expected.ppl_full - 1, rel=1e-6)
    assert row["pair_bits"] == expected.memory.effective_bits
    for side in ("key", "value"):
        signal = getattr(expected.seal_error, f"{side}_signal").sum()
        error = getattr(expected.seal_error, f"{side}_error").sum()
        assert row[f"{side}_error"] == pytest.approx((error / signal) ** 0.5)


def test_progress_is_exact_and_every_scheme_can_be_opened(found):
    progress, result = found
    total = CALIBRATION_TOKENS + (1 + len(SCHEMES)) * 330
    assert (progress[0].done, progress[-1].done, progress[-1].total) == (0, total, total)
    labels = [scheme_label(scheme.name) for scheme in SCHEMES]
    assert result.tables["quality"].column("scheme_name") == labels == list(result.configurations)
    plain = json.loads(result.to_json())
    assert plain["configurations"][labels[0]]["key"] == "int8:token:g16:absmax"
    assert result.to_csv()["quality-quality.csv"].count("\n") == 1 + len(SCHEMES)
    on_front = [label for label, front in zip(labels, result.arrays["front"], strict=True) if front]
    assert f"{len(on_front)} of {len(SCHEMES)}" in result.finding
    assert all(label in result.finding for label in on_front)


def test_sinks_and_edge_layers_are_what_was_asked(tiny):
    model = tiny(context=2048)
    given = {"schemes": ["int2-token"]}
    plain, unprotected, edges = (
        result_of(model, **given, **more) for more in ({}, {"sinks": 0}, {"edges": 1})
    )
    (cache,) = unprotected.configurations.values()
    assert cache["sink_size"] == 0
    (guarded,) = edges.configurations.values()
    assert [override["layer"] for override in guarded["overrides"]] == [0, 1]
    assert edges.arrays["bits"] > plain.arrays["bits"]
    assert edges.arrays["kl"] < plain.arrays["kl"]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"skip": 329}, "score_skip"),
        ({"length": 196}, "lab_no_sealed_row"),
        ({"start": 900_000}, "text_slice"),
        ({"start": CALIBRATION_TOKENS - 1}, "whole_range"),
        ({"schemes": []}, "choose_one"),
    ],
)
def test_refusals(tiny, given, code):
    short = {"skip": 100} if "length" in given else {}
    with pytest.raises(ConfigError) as refused:
        perform(tiny(context=2048), "quality", {**SMALL, **short, **given}, corpus=TEXT)
    assert refused.value.code == code


def test_the_shortest_text_has_one_row_that_reads_codes(tiny):
    result = result_of(tiny(context=2048), schemes=["int2-token"], length=197, skip=194)
    assert result.arrays["kl"][0] > 0


numbers = st.integers(0, 4).map(float)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8))
def test_the_front_by_its_definition(points):
    bits, loss = np.array(points).T
    front = pareto_front(bits, loss)
    for i, (a, b) in enumerate(points):
        beaten = any(c <= a and d <= b and (c, d) != (a, b) for c, d in points)
        assert front[i] == (not beaten)


def test_full_slice_is_the_reference_slice():
    assert module.FULL_SLICE == {"start": 3000, "length": 2048, "skip": 512}
