"""The comparison on the real model scores what ``score`` scores."""

from __future__ import annotations

import pytest

from kvviz.comparison import Comparison
from kvviz.comparison_request import ComparisonRequest, TextSlice
from kvviz.engine import comparing, load_text, score
from kvviz.presets import preset

pytestmark = pytest.mark.real
NAMES = ("full", "full-stack", "sinks-window")


def test_scores_are_those_of_each_alone(default_model):
    request = ComparisonRequest(
        "Name three colours.",
        tuple((name, preset(name)) for name in NAMES),
        max_new_tokens=3,
        text=TextSlice("pydoc-topics", 3000, 384, 128),
    )
    *_, comparison = comparing(default_model, request, capture_attention=False)
    assert isinstance(comparison, Comparison)
    ids = default_model.encode(load_text("pydoc-topics").text, False)[3000:3384]
    full, stack, window = (entry.score for entry in comparison.entries)
    assert full.kl == 0
    assert full.ppl == comparison.text.ppl
    for name, found in zip(NAMES[1:], (stack, window), strict=True):
        alone = score(default_model, ids, preset(name), skip=128)
        assert found.ppl == pytest.approx(alone.ppl, rel=5e-4)
        assert comparison.text.ppl == pytest.approx(alone.ppl_full, rel=1e-5)
        assert found.kl == pytest.approx(alone.kl, rel=0.05, abs=5e-5)
        assert found.top1 == pytest.approx(alone.top1, abs=0.003 + 1 / alone.rows)
        assert found.memory.used_bytes == alone.memory.used_bytes
    assert window.kl > stack.kl > 0
