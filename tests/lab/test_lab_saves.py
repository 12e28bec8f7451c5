"""With a cache and without: the same tokens, another amount of work."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.engine import Corpus
from kvviz.errors import ConfigError
from kvviz.figures.lab import lab_panels
from kvviz.lab import perform

TEXT = Corpus("words", "some words, and some other words; " * 60, "0" * 64)
SETTINGS = {"prompt_tokens": 40, "new_tokens": 5, "start": 0}


@pytest.fixture(scope="module")
def model(tiny):
    return tiny(context=512)


def test_work_is_counted_and_words_are_the_same(model):
    *progress, result = perform(model, "saves", SETTINGS, corpus=TEXT)
    cached, anew = result.arrays["fed"]
    assert cached.tolist() == [40, 1, 1, 1, 1]
    assert anew.tolist() == [40, 41, 42, 43, 44]
    assert progress[-1].done == progress[-1].total == cached.sum() + anew.sum()
    assert result.arrays["same"].all()
    assert result.marks["largest_logit_difference"] < 1e-3
    assert (result.arrays["ms"] > 0).all()
    assert "Both chose the same 5 tokens" in result.finding
    assert [panel.key for panel in lab_panels(result)] == ["work", "time"]
    assert len(result.tables["saves"].rows) == 5


def test_the_tokens_are_the_engine_s(model):
    from kvviz.config import CacheConfig
    from kvviz.lab.bench import Bench

    *_, result = perform(model, "saves", SETTINGS, corpus=TEXT)
    ids = Bench(model, TEXT).text(0, 40)
    session = model.new_session(CacheConfig())
    logits = model.forward(ids, session, last_only=True)
    said = []
    for _ in range(5):
        said.append(int(np.argmax(logits[-1].float().numpy())))
        logits = model.forward([said[-1]], session, last_only=True)
    assert result.tables["saves"].column("token") == [model.decode([token]) for token in said]


@pytest.mark.parametrize("given", [{"prompt_tokens": 510}, {"new_tokens": 1}, {"start": 100_000}])
def test_what_has_no_room_is_refused(model, given):
    with pytest.raises(ConfigError):
        perform(model, "saves", {**SETTINGS, **given}, corpus=TEXT)
