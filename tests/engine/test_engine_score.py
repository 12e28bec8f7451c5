"""Scores: nothing lost by keeping, the same whatever the feeding, and equal to the oracle's."""

from __future__ import annotations

import hashlib
import math
import threading

import pytest
import torch

from kvviz.config import CacheConfig, Middle, Position, Prefill
from kvviz.engine import load_text, score
from kvviz.errors import ConfigError, KvvizError
from kvviz.quant_config import QuantConfig
from tests.oracles.model_oracle import Rule, read_whole

INT4 = QuantConfig.parse("int4:token:g16:minmax")
IDS = torch.randint(0, 256, (60,), generator=torch.Generator().manual_seed(11)).tolist()
EVICT = CacheConfig(3, 9, Middle.EVICT, position=Position.IN_CACHE)
QUANTIZE = CacheConfig(3, 9, Middle.QUANTIZE, 4, INT4, INT4)


def figures(
    logits: torch.Tensor, full: torch.Tensor, ids: list[int], skip: int
) -> tuple[float, float, float]:
    """Perplexity, KL and top-1 agreement by their definitions."""
    tested, reference = (x[skip:-1].log_softmax(-1) for x in (logits, full))
    targets = torch.tensor(ids[skip + 1 :])
    nll = -tested[torch.arange(len(targets)), targets].mean()
    kl = (reference.exp() * (reference - tested)).sum(-1).mean()
    top1 = (tested.argmax(-1) == reference.argmax(-1)).double().mean()
    return math.exp(nll), float(kl), float(top1)


def test_keeping_everything_loses_nothing(tiny):
    for cache in (CacheConfig(), CacheConfig(0, 3), CacheConfig(2, 3, Middle.QUANTIZE, 4)):
        result = score(tiny(), IDS, cache, skip=10, chunk_size=7)
        assert result.kl == pytest.approx(0, abs=1e-12)
        assert result.top1 == 1.0
        assert result.ppl == pytest.approx(result.ppl_full, rel=1e-12)
        assert result.rows == 49
        assert result.tokens == 60


@pytest.mark.parametrize("cache", [EVICT, QUANTIZE])
@pytest.mark.parametrize("skip", [0, 20, 58])
def test_a_score_is_the_oracle_s_whatever_the_feeding(tiny, cache, skip):
    model = tiny()
    rule = Rule(
        3, 9, cache.middle.value, cache.block_size, cache.key.spec, cache.value.spec,
        in_cache=cache.position is Position.IN_CACHE,
    )  # fmt: skip
    full, _ = read_whole(model.network, IDS, Rule())
    logits, _ = read_whole(model.network, IDS, rule)
    ppl, kl, top1 = figures(logits, full, IDS, skip)
    for chunk in (60, 13, 1):
        result = score(model, IDS, cache, skip=skip, chunk_size=chunk)
        assert result.ppl == pytest.approx(ppl, rel=1e-5)
        assert result.kl == pytest.approx(kl, rel=1e-4)
        assert result.top1 == pytest.approx(top1, abs=1e-9)
        assert result.rows == 59 - skip


def test_an_exact_prompt_is_the_skipped_part(tiny):
    model = tiny()
    cache = CacheConfig(3, 9, Middle.QUANTIZE, 4, INT4, INT4, prefill=Prefill.EXACT)
    rule = Rule(3, 9, "quantize", 4, INT4.spec, INT4.spec, exact_prompt=30)
    full, _ = read_whole(model.network, IDS, Rule())
    logits, _ = read_whole(model.network, IDS, rule)
    for chunk in (60, 8):
        result = score(model, IDS, cache, skip=30, chunk_size=chunk)
        assert result.kl == pytest.approx(figures(logits, full, IDS, 30)[1], rel=1e-6)
    assert result.seal_error.sealed_tokens == 48


def test_refusals(tiny):
    model, stop = tiny(), threading.Event()
    stop.set()
    for call, code in [
        (lambda: score(model, IDS, EVICT, skip=59), "score_skip"),
        (lambda: score(model, IDS, EVICT, skip=-1), "score_skip"),
        (lambda: score(model, IDS, EVICT, skip=1, chunk_size=0), "int_minimum"),
        (lambda: score(model, IDS * 20, QUANTIZE, skip=1), "context_exceeded"),
        (lambda: score(model, IDS, EVICT, skip=1, stop=stop), "score_stopped"),
        (lambda: load_text("/no/such/file"), "text_unreadable"),
    ]:
        with pytest.raises(KvvizError) as refusal:
            call()
        assert refusal.value.code == code
        assert isinstance(refusal.value, ConfigError) or code == "score_stopped"


def test_a_text_is_known_by_its_hash(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("some text, 東京", encoding="utf-8")
    corpus = load_text(str(path))
    assert corpus.sha256 == hashlib.sha256("some text, 東京".encode()).hexdigest()
    topics = load_text("pydoc-topics")
    assert topics.sha256 == hashlib.sha256(topics.text.encode()).hexdigest()
    assert len(topics.text) > 100_000


def test_result_as_json(tiny):
    plain = score(tiny(), IDS, QUANTIZE, skip=10).to_dict()
    assert plain["rows"] == 49
    assert plain["bytes_total"] == sum(
        n for t in plain["bytes"].values() for p in t.values() for n in p.values()
    )
    assert plain["bytes_full_16bit"] == 60 * 2 * 2 * 2 * 16 * 2
    assert plain["config"] == QUANTIZE.to_dict()
    assert plain["weights_hash"] == tiny().facts.weights_hash
