"""Sealing all layers at once changes nothing: the same codes, the same logits, the same energies."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvviz.cache import session as session_module
from kvviz.cache.ahead import MOST_TOKENS
from kvviz.config import CacheConfig, LayerOverride, Middle
from kvviz.engine import calibrate
from kvviz.quant_config import QuantConfig

SPECS = (
    ("int4:token:g16:absmax", "int3:channel:g8:minmax"), ("int4:tensor:minmax", "nf4:head"),
    ("fp8", "none"), ("int4:channel:g8:minmax+prerotary", "int4:token:g16:minmax+outliers5"),
)  # fmt: skip


FP8 = QuantConfig.parse("fp8")


def cache_of(key: str, value: str, *overrides: LayerOverride) -> CacheConfig:
    sides = QuantConfig.parse(key), QuantConfig.parse(value)
    return CacheConfig(2, 5, Middle.QUANTIZE, 8, *sides, overrides=overrides)


def fed(model, cache: CacheConfig, chunk: int, calibration=None, tokens: int = 75):
    session = model.new_session(cache, calibration=calibration)
    ids = [(7 * i * i + 3 * i) % 250 for i in range(tokens)]
    logits = [
        model.forward(ids[start : start + chunk], session, last_only=False)
        for start in range(0, tokens, chunk)
    ]
    return session, torch.cat(logits)


def same(one, other) -> None:
    for left, right in zip(one.layers, other.layers, strict=True):
        assert left.sealed.tokens == right.sealed.tokens > 0
        for side in ("key", "value"):
            parts, expected = (x.sealed.sides[side].parts() for x in (left, right))
            assert parts.keys() == expected.keys()
            assert all(torch.equal(parts[name], expected[name]) for name in parts)
    for name in ("key_signal", "key_error", "value_signal", "value_error"):
        np.testing.assert_allclose(
            getattr(one.seal_error(), name), getattr(other.seal_error(), name), rtol=1e-12
        )


def counted(monkeypatch) -> list[int]:
    """How many layers each call of the many-layer sealing took."""
    from kvviz.cache import ahead

    calls, plain = [], ahead._seal

    def seal(layers, start, stop):
        calls.append(len(layers))
        plain(layers, start, stop)

    monkeypatch.setattr(ahead, "_seal", seal)
    return calls


@pytest.mark.parametrize(("key", "value"), SPECS)
@pytest.mark.parametrize("chunk", [1, 13])
def test_the_same_as_layer_by_layer(tiny, monkeypatch, key, value, chunk):
    model, cache = tiny(n_layers=3), cache_of(key, value)
    calls = counted(monkeypatch)
    together, logits = fed(model, cache, chunk)
    assert set(calls) == {3}
    monkeypatch.setattr(session_module, "seal_ahead", lambda layers, stop: None)
    apart, expected = fed(model, cache, chunk)
    same(together, apart)
    assert torch.equal(logits, expected)


def test_only_layers_with_the_same_quantizers_go_together(tiny, monkeypatch):
    other = LayerOverride(1, QuantConfig.parse("int2:head:absmax"), QuantConfig.parse("fp8"))
    cache = cache_of(*SPECS[0], other)
    calls = counted(monkeypatch)
    together, _ = fed(tiny(n_layers=4), cache, 1)
    assert set(calls) == {2}  # layers 2 and 3; 0 and 1 seal on their own
    monkeypatch.setattr(session_module, "seal_ahead", lambda layers, stop: None)
    same(together, fed(tiny(n_layers=4), cache, 1)[0])


def test_calibrated_layers_seal_on_their_own(tiny, monkeypatch):
    """Each has scales of its own."""
    model, cache = tiny(), cache_of("int4:channel:g8:minmax+static", "nuq2:token:g16")
    learnt = calibrate(model, list(range(40)), cache)
    calls = counted(monkeypatch)
    session, _ = fed(model, cache, 1, learnt)
    assert calls == []
    assert session.layers[1].sealed.tokens == 64


def test_a_long_chunk_is_left_to_the_layers(tiny, monkeypatch):
    calls = counted(monkeypatch)
    model = tiny(context=1024)
    session, _ = fed(model, CacheConfig(0, MOST_TOKENS + 34, Middle.QUANTIZE, 8, FP8, FP8), 300, tokens=600)
    assert calls == []
    assert session.layers[0].sealed.tokens == 304
