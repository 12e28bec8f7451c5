"""Does it need meaning: what stands at the front, weights of the full matrix, perplexities of the score."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import torch

from kvviz.config import CacheConfig
from kvviz.engine import Corpus, score
from kvviz.errors import ConfigError, KvvizError
from kvviz.lab import perform
from kvviz.lab.bench import Bench
from kvviz.lab.meaning import CHANGES, STREAMING, variant_ids
from tests.oracles.model_oracle import Rule, read_whole

CORPUS = Corpus("words", " ".join(f"word {n} of a small corpus" for n in range(40)), "5" * 64)
TOKENS = 160


@pytest.fixture(scope="module")
def done(tiny):
    *progress, result = perform(tiny(), "meaning", {"tokens": TOKENS}, corpus=CORPUS)
    return progress, result


def test_variants_differ_from_the_text_in_their_first_tokens_only(tiny):
    bench = Bench(tiny(), CORPUS)
    ids = bench.text(0, 20)
    made = {change: variant_ids(bench, change, ids, 4) for change in CHANGES}
    shown = {
        change: [label.display for label in bench.model.labels(found[:5])] for change, found in made.items()
    }
    assert shown["newlines"] == ["⏎", "⏎", "⏎", "⏎", "␠"]
    assert shown["punctuation"] == [".", ",", ";", ":", "␠"]
    assert shown["sink_token"] == ["<|im_start|>", "w", "o", "r", "d"]
    words = shown["random_words"][:4]
    assert all(word.isalpha() for word in words)
    assert len(set(words)) == 4
    assert made["sink_token"][1:] == ids
    for change in ("newlines", "punctuation", "random_words"):
        assert made[change][4:] == ids[4:]


def test_weights_are_the_oracle_s_and_perplexities_the_score_s(tiny, done):
    model = tiny()
    _, result = done
    bench = Bench(model, CORPUS)
    ids = bench.text(0, TOKENS)
    rows = {row[0]: row for row in result.tables["variants"].rows}
    for index, variant in enumerate(["unchanged", *CHANGES]):
        fed = variant_ids(bench, variant, ids, 4)
        first = 128 + len(fed) - TOKENS
        _, oracle = read_whole(model.network, fed, Rule(), keep_weights=True)
        weights = torch.stack(oracle.weights)[:, :, first:, :8].numpy()
        assert np.abs(result.arrays["position_mass"][index] - weights.mean((0, 1, 2))).max() < 1e-9
        assert np.abs(result.arrays["head_mass"][index] - weights[..., 0].mean(2)).max() < 1e-9
        expected = score(model, fed, STREAMING, skip=first)
        assert rows[variant][4] == pytest.approx(expected.ppl_full, rel=1e-9)
        assert rows[variant][5] == pytest.approx(expected.ppl, rel=1e-9)


def test_streaming_and_full_differ_only_where_something_is_evicted():
    assert CacheConfig(4, 124, STREAMING.middle) == STREAMING
    assert STREAMING.sink_size + STREAMING.window_size == 128


def test_progress_is_exact(done):
    progress, _ = done
    total = 2 * (5 * TOKENS + 1)
    assert [event.total for event in progress] == [total] * len(progress)
    assert progress[-1].done == total
    assert [event.done for event in progress][:3] == [0, TOKENS, 2 * TOKENS]


def test_a_random_model_has_no_sink_to_move(done):
    _, result = done
    assert "this model shows no attention sink" in result.finding


def test_a_last_chunk_of_one_row_predicts_nothing(tiny):
    model = tiny()
    settings = {"tokens": 257, "changes": ["newlines"]}
    *_, result = perform(model, "meaning", settings, corpus=CORPUS)
    ids = Bench(model, CORPUS).text(0, 257)
    expected = score(model, ids, STREAMING, skip=128)
    assert result.tables["variants"].column("ppl_keep")[0] == pytest.approx(expected.ppl_full, rel=1e-9)


def test_export(done):
    _, result = done
    plain = json.loads(result.to_json())
    assert [row["variant"] for row in plain["tables"]["variants"]] == ["unchanged", *CHANGES]
    assert plain["text_sha256"] == CORPUS.sha256
    assert result.to_csv()["meaning-position_mass.csv"].count("\n") == 1 + 5 * 8


def test_stop_and_refusals(tiny):
    stop = threading.Event()
    work = perform(tiny(), "meaning", {"tokens": TOKENS}, stop=stop, corpus=CORPUS)
    next(work)
    stop.set()
    with pytest.raises(KvvizError) as stopped:
        next(work)
    assert stopped.value.code == "lab_stopped"
    with pytest.raises(ConfigError) as refused:
        perform(tiny(), "meaning", {"tokens": 512}, corpus=CORPUS)  # and one in front: past the context
    assert refused.value.code == "context_exceeded"


@pytest.mark.real
@pytest.mark.timeout(900)
def test_four_newlines_share_what_one_token_had(default_model):
    settings = {"tokens": 256, "changes": ["newlines", "punctuation"]}
    *_, result = perform(default_model, "meaning", settings)
    unchanged, newlines, punctuation = result.arrays["position_mass"]
    assert unchanged[0] == pytest.approx(0.31, abs=0.03)
    assert newlines[:4] == pytest.approx([0.10] * 4, abs=0.02)
    assert newlines[:4].max() < 0.6 * unchanged[0]
    assert newlines[:4].max() - newlines[:4].min() < 0.005
    assert newlines[:4].sum() > unchanged[0]
    assert punctuation[0] > 3 * punctuation[1:].max()  # different marks: the first has it all again
    assert "keep their weight" in result.finding
