"""Recall: probabilities and attention by an independent reading, 0 where the fact is evicted, refusals."""

from __future__ import annotations

import json
import math
import threading

import numpy as np
import pytest
import torch

from kvviz.catalogue import keys
from kvviz.engine import Corpus
from kvviz.errors import KvvizError
from kvviz.lab import perform
from kvviz.lab.bench import Bench
from kvviz.lab.recall import ask
from kvviz.models.tiny import tiny_model
from tests.oracles.model_oracle import Rule, read_whole

TEXT = Corpus("words", "some words, and some other words.\n\n" * 40, "0" * 64)
SMALL = {"length": 300, "sinks": 4, "window": 60, "start": 0, "depths": ["10", "90"]}


@pytest.fixture(scope="module")
def model():
    return tiny_model(context=1024)


def test_the_fact_lies_where_it_was_put(model):
    bench = Bench(model, TEXT)
    asked = ask(bench, {**SMALL, "code": 7294}, 50)
    fact = model.decode(asked.ids[asked.fact.start : asked.fact.stop])
    assert fact == "The access code of the library is 7294."
    assert model.decode(asked.ids).endswith("The access code of the library is")
    assert model.decode(asked.answer) == " 7294"
    document = model.decode(asked.ids[asked.document.start : asked.document.stop])
    assert document.startswith("some words")
    assert document.endswith("and some")  # cut by tokens
    assert 0.4 < document.index("The access") / len(document) < 0.6


def test_numbers_by_an_independent_reading(model):
    given = {**SMALL, "caches": ["full", "sinks"], "code": 1234}
    *progress, result = perform(model, "recall", given, corpus=TEXT)
    assert progress[-1].done == progress[-1].total == 300 * 2 * 2
    answers = result.tables["answers"]
    for place, (rule, depth) in enumerate(
        [(Rule(), 10), (Rule(), 90), (Rule(4, 60, "evict"), 10), (Rule(4, 60, "evict"), 90)]
    ):
        asked = ask(Bench(model, TEXT), {**SMALL, "code": 1234}, depth)
        last = len(asked.ids) - 1
        logits, run = read_whole(model.network, [*asked.ids, *asked.answer], rule, keep_weights=True)
        logprobs = logits[last:-1].log_softmax(-1)[torch.arange(5), torch.tensor(asked.answer)]
        weights = torch.stack([w[:, last, asked.fact.start : asked.fact.stop].sum(-1) for w in run.weights])
        row = dict(zip([c.key for c in answers.columns], answers.rows[place], strict=True))
        assert row["depth_percent"] == depth
        assert row["probability"] == pytest.approx(math.exp(logprobs.sum()), rel=1e-4)
        assert row["token_probability"] == pytest.approx(math.exp(logprobs.mean()), rel=1e-5)
        assert row["fact_mass"] == pytest.approx(float(weights.mean()), rel=1e-5)
        assert row["fact_peak"] == pytest.approx(float(weights.max()), rel=1e-5)
        assert (row["fact_mass"] == 0) == (rule.middle == "evict")
        assert row["fact_held"] == ("yes" if rule.middle == "keep" else "no")
        np.testing.assert_allclose(result.arrays["fact_mass"][place // 2, place % 2], row["fact_mass"])


def test_every_cache_and_the_exports(model):
    *_, result = perform(model, "recall", SMALL, corpus=TEXT)
    plain = json.loads(result.to_json())
    assert np.isfinite(result.arrays["probability"]).all()
    assert result.arrays["fact_mass"].shape == (4, 2)
    assert (result.arrays["fact_mass"][[0, 3]] > 0).all()
    assert (result.arrays["fact_mass"][1:3] == 0).all()
    assert all(row["ppl_document"] > 1 for row in plain["tables"]["fluency"])
    assert set(result.to_csv()) == {"recall-answers.csv", "recall-fluency.csv"}
    assert "does not say the number" in result.finding  # a random model
    for name, table in result.tables.items():
        assert f"lab.table.{name}" in keys()
        assert {f"lab.column.{c.key}.{part}" for c in table.columns for part in ("label", "info")} <= keys()


def test_a_window_that_holds_everything_knows_as_much_as_full_precision(model):
    given = {**SMALL, "length": 64, "window": 1000, "depths": ["50"], "caches": ["full", "window", "sinks"]}
    *_, result = perform(model, "recall", given, corpus=TEXT)
    probability = result.arrays["probability"]
    np.testing.assert_allclose(probability, probability[:1].repeat(3, 0), rtol=1e-9)
    assert result.tables["fluency"].column("ppl_document") == [None] * 3
    assert "nan" not in result.finding.lower()


def test_refusals_and_stopping(model):
    for given, code in [
        ({"length": 990}, "lab_context"),
        ({"length": 5000}, "text_slice"),
        ({"caches": []}, "choose_one"),
        ({"code": 12}, "whole_range"),
    ]:
        with pytest.raises(KvvizError) as refusal:
            perform(model, "recall", {**SMALL, **given}, corpus=TEXT)
        assert refusal.value.code == code
    stop = threading.Event()
    steps = perform(model, "recall", SMALL, corpus=TEXT, stop=stop)
    assert next(steps).done == 0
    assert 0 < next(steps).done < 300
    stop.set()
    with pytest.raises(KvvizError) as stopped:
        next(steps)
    assert stopped.value.code == "lab_stopped"


@pytest.mark.real
@pytest.mark.timeout(600)
def test_streaming_keeps_fluency_and_not_the_fact(default_model):
    given = {"depths": ["50"]}
    *_, result = perform(default_model, "recall", given)
    answers, fluency = result.tables["answers"], result.tables["fluency"]
    print(answers.to_csv(), fluency.to_csv(), result.elapsed_ms)  # noqa: T201
    full, window, sinks, quantized = (float(x) for x in answers.column("probability"))
    assert min(full, quantized) > 0.1
    assert max(window, sinks) < 0.001
    assert answers.column("right") == ["yes", "no", "no", "yes"]
    mass = result.arrays["fact_mass"][:, 0]
    assert mass[1] == mass[2] == 0
    assert min(mass[0], mass[3]) > 1e-3
    full, window, sinks, quantized = (math.log(float(x)) for x in fluency.column("ppl_document"))
    assert sinks - full < (window - full) / 2  # the sinks give back more than half of what the window lost
    assert quantized - full < 0.02
