"""Sealed once against quantized again: errors by the oracle on exact keys, KL by a plain reading."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvviz.config import CacheConfig, Middle
from kvviz.engine import Corpus
from kvviz.errors import KvvizError
from kvviz.experiment import LabResult
from kvviz.figures.lab import lab_panels
from kvviz.lab import perform
from kvviz.quant_config import QuantConfig
from tests.oracles.quant_oracle import quantize

TEXT = Corpus("words", "some words, and some other words; " * 30, "0" * 64)
SMALL = {"flushes": 4, "start": 5, "points": 2}
N = 4 * 64


@pytest.fixture(scope="module")
def found(tiny) -> LabResult:
    *_, result = perform(tiny(), "requantize", SMALL, corpus=TEXT)
    assert isinstance(result, LabResult)
    return result


def exact(model) -> dict[str, np.ndarray]:
    """``(L, H_kv, N, D)`` behind the sinks, of a plain reading."""
    session = model.new_session(CacheConfig())
    model.forward(model.encode(TEXT.text, False)[5 : 5 + 4 + N + 32], session, last_only=True)
    return {
        side: np.stack([layer.exact(side)[0, :, 4 : 4 + N].numpy() for layer in session.layers])
        for side in ("key", "value")
    }


def again(x: np.ndarray, spec: str, flushes: int = 4) -> np.ndarray:
    """By the rule, in numpy: everything restored is quantized again with the next block."""
    held = x[:, :0]
    for flush in range(flushes):
        held = np.concatenate([held, x[:, 64 * flush : 64 * (flush + 1)]], axis=1)
        block = held.shape[1] if ":head" in spec or ":tensor" in spec else 64
        held = quantize(held, spec, block).restored
    return held


def error(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(((x - y) ** 2).sum() / (x**2).sum()))


@pytest.mark.parametrize("side", ["key", "value"])
def test_errors_are_the_oracle_s(tiny, found, side):
    x = exact(tiny())[side]
    assert len(found.marks["schemes"]) == 8
    for place, spec in enumerate(found.marks["schemes"]):
        once = np.stack([quantize(layer, spec, 64).restored for layer in x])
        twice = np.stack([again(layer, spec) for layer in x])
        arrays = found.arrays
        assert arrays[f"{side}_once"][place, -1] == pytest.approx(error(x, once), rel=1e-6)
        assert arrays[f"{side}_again"][place, -1] == pytest.approx(error(x, twice), rel=1e-6)
        first = error(x[:, :, :64], twice[:, :, :64])
        assert arrays[f"{side}_first_again"][place, -1] == pytest.approx(first, rel=1e-6)
        if side == "key":
            layers = [error(*pair) for pair in zip(x, twice, strict=True)]
            np.testing.assert_allclose(arrays["layers_again"][place], layers, rtol=1e-6)


def test_where_groups_stay_together_nothing_grows_and_where_they_do_not_it_does(found):
    growth = dict(zip(found.marks["schemes"], found.tables["requantize"].column("key_growth"), strict=True))
    for spec, times in growth.items():
        if ":token" in spec or ":channel" in spec:
            assert times == pytest.approx(1, abs=1e-6), spec
    assert growth["int4:head:minmax"] > 1.1
    assert growth["int4:tensor:minmax"] > 1.1
    assert "int4:token:g16:minmax" in found.finding.split("within 2 %")[1]
    sealed_once = found.arrays["key_first_once"]
    np.testing.assert_allclose(found.arrays["key_first_again"][:, 0], sealed_once, rtol=1e-12)


def test_kl_of_sealing_once_is_that_of_a_cache_which_shows_the_same(tiny, found):
    """A session whose window is the next rows sees exact sinks, the same sealed blocks, exact next rows."""
    model, spec = tiny(), found.marks["schemes"][1]
    ids = model.encode(TEXT.text, False)[5 : 5 + 4 + N + 32]
    plain = model.new_session(CacheConfig())
    full = torch.log_softmax(model.forward(ids, plain, last_only=False)[-32:], -1)
    once = {s: np.stack([quantize(x, spec, 64).restored for x in xs]) for s, xs in exact(model).items()}
    session = model.new_session(CacheConfig())
    model.forward(ids[: 4 + N], session, last_only=True)
    with torch.inference_mode():
        for index, layer in enumerate(session.layers):
            for side, restored in once.items():
                layer.recent[side].view(0, N)[:] = torch.from_numpy(restored[index])[None]
    read = torch.log_softmax(model.forward(ids[4 + N :], session, last_only=False), -1)
    expected = float((full.exp() * (full - read)).sum(-1).mean())
    assert found.arrays["kl_once"][1, -1] == pytest.approx(expected, rel=1e-6)
    assert expected > 1e-3
    steps = found.tables["requantize_steps"]
    assert [cell is not None for cell in steps.column("kl_once")[:4]] == [False, True, False, True]


def test_our_cache_seals_once(tiny):
    """What the experiment calls once is what the cache does: the same restored keys after every flush."""
    model, config = tiny(), QuantConfig.parse("int4:head:minmax")
    session = model.new_session(CacheConfig(4, 1, Middle.QUANTIZE, 64, config, config))
    ids = model.encode(TEXT.text, False)[5 : 5 + 4 + N]
    firsts = []
    for start in range(0, len(ids), 68):
        model.forward(ids[start : start + 68], session, last_only=True)
        side = session.layers[0].sealed.sides["key"]
        if session.layers[0].sealed.tokens:
            firsts.append(side.read(0, 64, torch.device("cpu"), torch.float64))
    assert len(firsts) > 2
    assert all(torch.equal(firsts[0], later) for later in firsts[1:])


def test_figures_draw_every_scheme(found):
    growth, layers, kl = (panel.payload for panel in lab_panels(found))
    assert [trace["name"] for trace in growth["data"]] == found.marks["schemes"]
    assert len(layers["data"]) == 16
    assert [len(trace["text"]) for trace in kl["data"]] == [8, 8]


def test_without_kl_and_refusals(tiny):
    small = {"flushes": 2, "start": 5, "points": 0, "axes": ["tensor"], "mappings": ["minmax"], "bits": "2"}
    events = list(perform(tiny(), "requantize", small, corpus=TEXT))
    result = events[-1]
    assert isinstance(result, LabResult)
    assert events[-2].done == events[-2].total
    assert result.tables["requantize"].column("kl_once") == [None]
    assert lab_panels(result)[2].payload["data"] == []
    with pytest.raises(KvvizError) as refusal:
        perform(tiny(), "requantize", {"flushes": 120}, corpus=TEXT)
    assert refusal.value.code == "context_exceeded"
