"""The real model: the reference table, the oracle computed on it, and that feeding does not matter."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from kvviz.config import CacheConfig, Middle, Offload, Position
from kvviz.engine import LanguageModel, load_text, score
from kvviz.quant_config import QuantConfig
from tests.cache.cases import stored
from tests.engine.test_engine_score import figures
from tests.oracles.model_oracle import Rule, read_whole

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]  # seconds; a busy machine is no failure

REFERENCE_TEXT = "71f2ff5d99bdc1f9"
SHORT = 900


def cache(
    sinks: int, window: int, middle: Middle, block: int = 64, key: str = "none", value: str = "none", **more
):
    return CacheConfig(sinks, window, middle, block, QuantConfig.parse(key), QuantConfig.parse(value), **more)


K8V4 = ("int8:token:g64:absmax", "int4:token:g64:absmax")
KIVI4 = ("int4:channel:g32:minmax", "int4:token:g64:minmax")
MIXED = ("int3:channel:g64:minmax+prerotary+outliers1", "nf4:token:g64+hadamard")
FULL_PPL = 11.7102  # every score reads the text through full precision too
#: cache, perplexity, KL, top-1
TABLE = {
    "window": (cache(0, 260, Middle.EVICT), 22.5073, 0.68217, 0.6059),
    "sinks": (cache(4, 256, Middle.EVICT), 12.6713, 0.06950, 0.8906),
    "k8v4": (cache(4, 128, Middle.QUANTIZE, 64, *K8V4, offload=Offload.HOST), 11.7191, 0.00065, 0.9857),
}


@pytest.fixture(scope="module")
def corpus():
    return load_text("pydoc-topics")


@pytest.fixture(scope="module")
def ids(default_model, corpus) -> list[int]:
    """Tokens 3000..5047."""
    return default_model.encode(corpus.text, False)[3000:5048]


@pytest.fixture(scope="module")
def full_logits(default_model, ids):
    return read_whole(default_model.network, ids[:SHORT], Rule())[0]


@pytest.mark.parametrize("name", list(TABLE))
def test_the_reference_table(default_model, corpus, ids, name):
    config, ppl, kl, top1 = TABLE[name]
    if not corpus.sha256.startswith(REFERENCE_TEXT):
        pytest.skip("another Python, another text: the oracle tests below stand for it")
    result = score(default_model, ids, config, skip=512, chunk_size=512)
    print(name, result.ppl_full, result.ppl, result.kl, result.top1)  # noqa: T201
    assert result.rows == 1535
    assert result.ppl_full == pytest.approx(FULL_PPL, rel=5e-4)
    assert result.ppl == pytest.approx(ppl, rel=5e-4)
    assert result.kl == pytest.approx(kl, rel=0.05, abs=5e-5)
    assert result.top1 == pytest.approx(top1, abs=0.003)


def test_keeping_scores_as_full_precision_and_as_the_oracle(default_model, ids, full_logits):
    result = score(default_model, ids[:SHORT], cache(4, 128, Middle.KEEP), skip=512, chunk_size=512)
    assert result.ppl_full == result.ppl
    assert result.ppl == pytest.approx(figures(full_logits, full_logits, ids[:SHORT], 512)[0], rel=5e-4)
    assert (result.kl, result.top1) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        (cache(4, 128, Middle.QUANTIZE, 64, *KIVI4), Rule(4, 128, "quantize", 64, *KIVI4)),
        (cache(4, 252, Middle.EVICT, position=Position.IN_CACHE), Rule(4, 252, "evict", in_cache=True)),
    ],
    ids=["kivi-4", "evict in_cache"],
)
def test_the_oracle_on_the_real_model(default_model, ids, full_logits, config, rule):
    logits, _ = read_whole(default_model.network, ids[:SHORT], rule)
    ppl, kl, top1 = figures(logits, full_logits, ids[:SHORT], 512)
    result = score(default_model, ids[:SHORT], config, skip=512, chunk_size=512)
    print(ppl, kl, top1, result.ppl, result.kl, result.top1)  # noqa: T201
    assert kl > 1e-3  # the configuration does something
    assert result.ppl == pytest.approx(ppl, rel=5e-4)
    assert result.kl == pytest.approx(kl, rel=0.05, abs=5e-5)
    assert result.top1 == pytest.approx(top1, abs=0.003)


def test_modified_quantizers_on_the_real_weights_in_float64(default_model, ids):
    """No rounding to hide behind: a run in float64 scores what the full matrix scores, to six digits.

    Rotary angles stay in float32, so that a code may still flip.
    """
    facts = replace(default_model.facts, dtype="float64")
    model = LanguageModel(copy.deepcopy(default_model.network).double(), default_model.tokenizer, facts)
    ids = ids[:400]
    full, _ = read_whole(model.network, ids, Rule())
    logits, _ = read_whole(model.network, ids, Rule(4, 64, "quantize", 64, *MIXED))
    ppl, kl, top1 = figures(logits, full, ids, 128)
    result = score(model, ids, cache(4, 64, Middle.QUANTIZE, 64, *MIXED), skip=128, chunk_size=150)
    assert kl > 1e-3
    assert result.ppl == pytest.approx(ppl, rel=1e-6)
    assert result.kl == pytest.approx(kl, rel=1e-5)
    assert result.top1 == top1


def fed(model, config, ids, chunk: int, singles: int):
    """Log-probabilities and the session, fed in chunks and the last ``singles`` one by one."""
    session = model.new_session(config)
    edges = [*range(0, len(ids) - singles, chunk), *range(len(ids) - singles, len(ids) + 1)]
    rows = [model.forward(ids[a:b], session, last_only=False) for a, b in pairwise(edges)]
    return torch.cat(rows), session


@pytest.mark.parametrize(
    "config",
    [cache(4, 64, Middle.KEEP), cache(4, 64, Middle.EVICT, position=Position.IN_CACHE)],
    ids=["keep", "evict"],
)
def test_feeding_does_not_matter_for_exact_and_evicting_runs(default_model, ids, config):
    whole, _ = fed(default_model, config, ids[:300], 300, 0)
    for chunk, singles in ((77, 0), (200, 40)):
        logits, _ = fed(default_model, config, ids[:300], chunk, singles)
        assert (logits - whole).abs().max() <= 1e-3


@pytest.mark.parametrize("specs", [K8V4, KIVI4], ids=["k8v4", "kivi-4"])
def test_feeding_hardly_moves_a_code(default_model, ids, specs):
    config = cache(4, 64, Middle.QUANTIZE, 32, *specs)
    whole, first = fed(default_model, config, ids[:400], 400, 0)
    reference = whole.log_softmax(-1)
    for chunk, singles in ((77, 0), (300, 40)):
        logits, session = fed(default_model, config, ids[:400], chunk, singles)
        kl = (reference.exp() * (reference - logits.log_softmax(-1))).sum(-1).mean()
        assert abs(float(kl)) < 1e-4
        differ = total = 0
        expected = stored(first)
        for (layer, side, part), tensor in stored(session).items():
            if part != "codes":
                continue
            bits = 8 if specs[side == "value"].startswith("int8") else 4
            for lane in range(8 // bits):
                mask = (1 << bits) - 1
                a, b = (((x >> (bits * lane)) & mask).int() for x in (tensor, expected[layer, side, part]))
                steps = (a - b).abs()
                assert steps.max() <= 1
                differ += int((steps > 0).sum())
                total += steps.numel()
        assert total == 30 * 2 * 3 * 64 * first.layers[0].sealed.tokens
        assert differ <= 0.003 * total


def test_weights_of_the_real_model_sum_to_one(default_model, ids):
    """30 layers, 9 maps each; the future gets nothing; looking changes no bit."""
    config = cache(4, 64, Middle.QUANTIZE, 32, *K8V4)
    plain, watched = default_model.new_session(config), default_model.new_session(config)
    layers = []

    def watch(layer, result, step):
        full = torch.zeros(9, step.stop - step.first, step.stop)
        for start, weights in result.weights():
            full[..., start : start + weights.shape[-1]] += weights[0]
        assert (full.sum(-1) - 1).abs().max() <= 1e-6
        future = torch.arange(step.stop)[None] > torch.arange(step.first, step.stop)[:, None]
        assert full[:, future].abs().sum() == 0
        layers.append(layer)

    watched.observer = watch
    for start in range(0, 300, 100):
        part = ids[start : start + 100]
        assert torch.equal(
            default_model.forward(part, plain, last_only=False),
            default_model.forward(part, watched, last_only=False),
        )
    assert layers == list(range(30)) * 3
