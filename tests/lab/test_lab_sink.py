"""Is there a sink: numbers of the full matrix, what a random model is told, progress, stopping, exports."""

from __future__ import annotations

import csv
import io
import json
import threading

import numpy as np
import pytest
import torch

from kvviz.config import CacheConfig
from kvviz.engine import Corpus
from kvviz.errors import KvvizError
from kvviz.experiment import LabProgress
from kvviz.lab import perform
from kvviz.lab.bench import Bench
from kvviz.lab.mass import PositionMass, even_weight, sink_rate
from kvviz.lab.sink import read_text, texts_of
from tests.oracles.model_oracle import Rule, read_whole

CORPUS = Corpus("words", " ".join(f"word {n} of a small corpus" for n in range(40)), "5" * 64)
SMALL = {"tokens": 16, "texts": 2}


def driven(work):
    """What a generator returns, and what it yielded."""
    yielded = []
    while True:
        try:
            yielded.append(next(work))
        except StopIteration as done:
            return done.value, yielded


def oracle_means(weights, positions: int = 4):
    """Gu et al.: mean of ``weights (L, H, T, T)`` over rows t >= k, by position."""
    tokens = weights.shape[-1]
    return np.stack([weights[..., k:, k].mean(-1) for k in range(min(positions, tokens))], -1)


@pytest.fixture(scope="module")
def done(tiny):
    *progress, result = perform(tiny(), "sink", SMALL, corpus=CORPUS)
    return progress, result


@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 40])
def test_a_reading_is_the_oracle_s(tiny, tokens):
    model = tiny()
    bench = Bench(model, CORPUS)
    ids = bench.text(3, tokens)
    reading, yielded = driven(read_text(bench, ids))
    assert sum(yielded) == tokens
    _, oracle = read_whole(model.network, ids, Rule(), keep_weights=True)
    expected = oracle_means(torch.stack(oracle.weights).numpy())
    seen = min(4, tokens)
    assert np.abs(reading.weight[..., :seen] - expected).max() < 1e-9
    assert np.isnan(reading.weight[..., seen:]).all()
    for name, stored in (("key_norm", oracle.keys), ("value_norm", oracle.values)):
        lengths = torch.stack(stored).norm(dim=-1).mean(1).numpy()  # (L, H_kv, T, D) -> (L, T)
        assert np.abs(getattr(reading, name) - lengths).max() < 1e-9
    assert np.isfinite(reading.hidden_norm).all()
    assert reading.hidden_norm.shape == reading.peak.shape == (2, tokens)


def test_norms_and_peaks_are_those_of_the_residual_stream(tiny):
    model = tiny()
    bench = Bench(model, CORPUS)
    ids = bench.text(0, 9)
    streams = {}
    model.forward(
        ids, model.new_session(CacheConfig()), last_only=True, hidden=lambda i, x: streams.update({i: x[0]})
    )
    reading, _ = driven(read_text(bench, ids))
    for layer, stream in streams.items():
        assert np.abs(reading.hidden_norm[layer] - stream.norm(dim=-1).numpy()).max() < 1e-5
        assert np.abs(reading.peak[layer] - stream.abs().amax(-1).numpy()).max() < 1e-5
        largest = [item for item in reading.largest if item.layer == layer]
        assert len(largest) == 3
        assert abs(largest[0].value) == pytest.approx(float(stream.abs().max()))
        assert largest[0].value == pytest.approx(float(stream[largest[0].position, largest[0].channel]))
        median = float(stream.abs().flatten().median())
        assert largest[0].ratio == pytest.approx(abs(largest[0].value) / median)


def test_feeding_does_not_matter_for_the_mean_weights(tiny):
    model = tiny()
    ids = Bench(model, CORPUS).text(0, 30)
    means = []
    for chunk, from_row in ((30, 0), (7, 0), (30, 12), (7, 12)):
        mass = PositionMass(n_layers=2, n_heads=4, positions=6, from_row=from_row)
        session = model.new_session(CacheConfig(2, 5))
        session.observer = mass
        driven(Bench(model, CORPUS).read(ids, session, chunk_size=chunk))
        means.append(mass.mean())
    _, oracle = read_whole(model.network, ids, Rule(), keep_weights=True)
    weights = torch.stack(oracle.weights).numpy()
    for mean in means[:2]:
        assert np.abs(mean - oracle_means(weights, 6)).max() < 1e-9
    for mean in means[2:]:
        assert np.abs(mean - weights[:, :, 12:, :6].mean(2)).max() < 1e-9


def test_sink_rate_is_the_share_of_heads_above_epsilon():
    mean = np.asarray([[[0.31, 0.0], [0.3, 0.0]], [[0.9, 0.29], [0.2, 0.4]]])  # (L, H, positions)
    assert sink_rate(mean).tolist() == [0.5, 0.25]
    assert even_weight(4, 0) == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert even_weight(4, 2) == pytest.approx((1 / 3 + 1 / 4) / 2)
    assert even_weight(4, 0, from_row=3) == pytest.approx(1 / 4)


def test_texts_are_what_their_names_say(tiny):
    bench = Bench(tiny(), CORPUS)
    whole = bench.model.encode(CORPUS.text, False)
    natural = texts_of(bench, "natural", 3, 20)
    middle = (len(whole) - 20) // 2
    assert natural == [whole[:20], whole[middle : middle + 20], whole[-20:]]
    drawn = texts_of(bench, "random", 3, 20)
    assert drawn == texts_of(bench, "random", 3, 20)
    assert len({tuple(ids) for ids in drawn}) == 3
    assert not bench.model.token_text.special_ids & {token for ids in drawn for token in ids}
    repeated = texts_of(bench, "repeated", 3, 20)
    assert [len(set(ids)) for ids in repeated] == [1, 1, 1]
    assert len({ids[0] for ids in repeated}) > 1


def test_progress_reaches_the_work_that_was_told(done):
    progress, _ = done
    assert all(isinstance(event, LabProgress) for event in progress)
    assert {event.total for event in progress} == {3 * 2 * 16}
    assert progress[-1].done == 3 * 2 * 16
    assert [event.done for event in progress] == list(range(0, 97, 16))


def test_a_random_model_is_said_to_have_no_sink(tiny):
    *_, result = perform(tiny(), "sink", {"texts": 2}, corpus=CORPUS)
    assert max(result.tables["rates"].column("sink_rate")) == 0
    assert result.finding.startswith("No head of this model")
    assert "(0 of 8 heads" in result.finding
    assert result.finding.endswith("This model shows no attention sink.")


def test_a_head_that_exceeds_epsilon_by_chance_is_no_sink(done):
    _, result = done
    assert 0 < max(result.tables["rates"].column("sink_rate")) < 0.3
    assert result.finding.startswith("Some heads give")
    assert result.finding.endswith("This model shows no attention sink.")


def test_a_model_whose_first_token_stands_out_is_said_to_have_one(tiny, monkeypatch):
    """The same weights, judged against thresholds that they exceed."""
    monkeypatch.setattr("kvviz.lab.sink.TWICE", 0.5)
    *_, result = perform(tiny(), "sink", SMALL | {"kinds": ["repeated"]}, corpus=CORPUS)
    assert result.finding.startswith("Heads that give the first token")
    assert "one token repeated" in result.finding
    assert result.text_sha256 == ""


def test_tables_agree_with_the_arrays(done):
    _, result = done
    assert result.text_sha256 == CORPUS.sha256
    assert result.arrays["mass"].shape == (3, 2, 4)
    assert result.arrays["hidden_norm"].shape == (3, 2, 16)
    heads = np.asarray(result.tables["head_mass"].column("first_mass")).reshape(3, 2, 4)
    assert np.array_equal(heads, result.arrays["mass"])
    firsts = [row for row in result.tables["rates"].rows if row[1] == 1]
    assert [row[0] for row in firsts] == ["natural", "random", "repeated"]
    assert [row[3] for row in firsts] == pytest.approx(heads.mean((1, 2)).tolist())
    others = np.median(result.arrays["key_norm"][:, :, 1:], axis=-1).flatten()
    assert result.tables["norms"].column("key_others") == pytest.approx(others.tolist())


def test_export_loses_nothing_and_has_no_nan(done):
    _, result = done
    plain = json.loads(result.to_json())
    assert plain["tables"]["rates"][0]["kind"] == "natural"
    assert plain["settings"] == {"kinds": ["natural", "random", "repeated"], "tokens": 16, "texts": 2}
    files = result.to_csv()
    assert set(files) == {f"sink-{name}.csv" for name in ("rates", "norms", "activations", "head_mass")}
    rows = list(csv.DictReader(io.StringIO(files["sink-rates.csv"])))
    assert len(rows) == 12
    assert float(rows[0]["mean_weight"]) == result.tables["rates"].rows[0][3]
    assert all(np.isfinite(values).all() for values in result.arrays.values())
    assert "nan" not in "".join(files.values())


def test_stop_ends_it_without_a_result(tiny):
    stop = threading.Event()
    work = perform(tiny(), "sink", SMALL, stop=stop, corpus=CORPUS)
    next(work)
    next(work)
    stop.set()
    with pytest.raises(KvvizError) as stopped:
        next(work)
    assert stopped.value.code == "lab_stopped"


@pytest.mark.parametrize("kind", ["natural", "random"])
@pytest.mark.real
def test_the_real_model_agrees_with_the_full_matrix(default_model, kind):
    bench = Bench(default_model)
    ids = texts_of(bench, kind, 2, 64)[1]
    reading, _ = driven(read_text(bench, ids))
    _, oracle = read_whole(default_model.network, ids, Rule(), keep_weights=True)
    expected = oracle_means(torch.stack(oracle.weights).numpy())
    assert np.abs(reading.weight - expected).max() < 1e-4
    assert sink_rate(reading.weight) == pytest.approx(sink_rate(expected), abs=1e-4)


@pytest.mark.real
def test_the_real_model_has_a_sink_on_the_first_token(default_model):
    *_, result = perform(default_model, "sink", {"texts": 2})
    rate = {row[:2]: row[2] for row in result.tables["rates"].rows}
    assert rate["natural", 1] > 0.6
    assert rate["random", 1] > 0.6
    assert rate["repeated", 1] == 0
    assert max(rate["natural", k] for k in (2, 3, 4)) < 0.05
    hidden, value = result.arrays["hidden_norm"][0], result.arrays["value_norm"][0]
    assert (hidden[12:25, 0] > 20 * np.median(hidden[12:25, 1:], axis=1)).all()
    assert np.median(value[4:, 0] / np.median(value[4:, 1:], axis=1)) < 0.5
    assert "natural text 7" in result.finding
