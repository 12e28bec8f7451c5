"""Keys before rotary: the turn is undone exactly, codes are of unrotated keys, other layouts refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvviz.cache.prerotary import KeyTurn
from kvviz.config import CacheConfig, LayerOverride, Middle, Offload, Position
from kvviz.errors import ConfigError
from kvviz.models import adapter
from kvviz.models.tiny import tiny_model
from kvviz.quant_config import QuantConfig
from tests.oracles.model_oracle import Rule, _unrotate, read_whole
from tests.oracles.quant_oracle import quantize, unpack_bytes

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}
PARTIAL = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}


def tokens(count: int, seed: int = 1) -> list[int]:
    return torch.randint(0, 256, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def quantizing(key: str, value: str = "none", **more) -> CacheConfig:
    return CacheConfig(2, 4, Middle.QUANTIZE, 8, QuantConfig.parse(key), QuantConfig.parse(value), **more)


@pytest.mark.parametrize("rope", [None, YARN, PARTIAL])
@pytest.mark.parametrize("family", ["llama", "qwen3", "phi3"])
@pytest.mark.parametrize(
    "spec", ["int4:channel:g8:minmax+prerotary", "nf4:head+prerotary+outliers2+hadamard"]
)
def test_logits_equal_the_oracle_s(tiny, family, rope, spec):
    if rope is not None and family != ("phi3" if rope is PARTIAL else "llama"):
        return
    model = tiny(family) if rope is None else tiny_with(family, rope)
    ids = tokens(40)
    expected, oracle = read_whole(model.network, ids, Rule(2, 4, "quantize", 8, spec, "none"))
    for lengths in ([40], [7, 1, 20, 12], [1] * 40):
        session = model.new_session(quantizing(spec, offload=Offload.HOST))
        start, rows = 0, []
        for length in lengths:
            rows.append(model.forward(ids[start : start + length], session, last_only=False))
            start += length
        assert (torch.cat(rows) - expected).abs().max() < 1e-9
    assert oracle.sealed == 32


def tiny_with(family: str, rope: dict):
    return tiny_model(family, rope_parameters=rope)


def test_yarn_and_partial_rotary_are_what_they_are_called():
    cos, _ = adapter.rotary(tiny_with("llama", YARN).network)(torch.arange(3))
    assert cos[0, 0] > 1.1  # attention scaling: the turn is no plain rotation
    cos, _ = adapter.rotary(tiny_with("phi3", PARTIAL).network)(torch.arange(3))
    assert cos.shape == (3, 8)


@pytest.mark.parametrize(
    ("dtype", "rounding"),
    [(torch.float64, 1e-14), (torch.float32, 2e-6), (torch.bfloat16, 2e-6), (torch.float16, 2e-6)],
)
def test_undo_and_redo_are_inverse(tiny, dtype, rounding):
    angles = adapter.rotary(tiny().network)
    turn = KeyTurn(angles, dtype, torch.device("cpu"))
    keys = torch.randn(1, 2, 40, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    unrotated = turn.undo(keys, 1010)  # across a step of the table
    assert unrotated.dtype is wide
    assert (turn.redo(unrotated, 1010) - keys.to(wide)).abs().max() < rounding
    assert (unrotated - keys).abs().max() > 0.5
    cos, sin = (x[1010:].to(dtype).double() for x in angles(torch.arange(1050)))
    assert (unrotated - _unrotate(keys.double(), cos, sin)).abs().max() < 1e-5


def test_codes_are_those_of_unrotated_keys(tiny):
    """What the first layer projects does not depend on the position, so equal tokens have equal codes."""
    model = tiny()
    session = model.new_session(quantizing("int8:token:g16:absmax+prerotary"))
    model.forward([65] * 30, session, last_only=True)
    codes = session.layers[0].sealed.sides["key"].parts()["codes"]
    assert codes.shape[2] == 24
    assert (codes.int() - codes[:, :, :1].int()).abs().max() <= 1  # rounding of the turn, at most a step
    rotated = model.new_session(quantizing("int8:token:g16:absmax"))
    model.forward([65] * 30, rotated, last_only=True)
    codes = rotated.layers[0].sealed.sides["key"].parts()["codes"]
    assert (codes.int() - codes[:, :, :1].int()).abs().max() > 50


def test_a_large_channel_before_rotary_stays_in_its_group(tiny):
    """Keys with one large unrotated channel: channel groups before rotary beat channel groups after it."""
    turn = KeyTurn(adapter.rotary(tiny(head_dim=64).network), torch.float64, torch.device("cpu"))
    plain = torch.randn(1, 1, 64, 64, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    plain[..., 1] += 100
    keys = turn.redo(plain, 0)
    error = {}
    for name, given in (("after", keys), ("before", plain)):
        restored = torch.from_numpy(quantize(given[0].numpy(), "int4:channel:g32:minmax", 64).restored)[None]
        restored = restored if name == "after" else turn.redo(restored, 0)
        error[name] = float((restored - keys).norm() / plain[..., 2:].norm())
    assert error["before"] == pytest.approx(0.08, rel=0.1)
    assert error["after"] > 4 * error["before"]


def test_the_seal_error_is_that_of_rotated_keys(tiny):
    model = tiny()
    session = model.new_session(quantizing("int4:channel:g8:minmax+prerotary"))
    model.forward(tokens(40), session, last_only=True)
    _, oracle = read_whole(
        model.network, tokens(40), Rule(2, 4, "quantize", 8, "int4:channel:g8:minmax+prerotary", "none")
    )
    exact = oracle.keys[0][:, 2:34].numpy()
    signal, wrong = session.seal_error().key_signal[0], session.seal_error().key_error[0]
    assert np.allclose(signal, (exact**2).sum(1), rtol=1e-9)
    assert np.allclose(wrong, ((exact - oracle.key_codes[0].restored) ** 2).sum(1), rtol=1e-6)
    packed = session.layers[0].sealed.sides["key"].parts()["codes"][0].numpy()
    assert np.array_equal(unpack_bytes(packed, 4, 16), oracle.key_codes[0].codes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_runs(tiny, dtype):
    model = tiny(dtype=dtype)
    session = model.new_session(quantizing("int4:head:absmax+prerotary+outliers1+hadamard", "fp8+outliers1"))
    for start in range(0, 40, 13):
        logits = model.forward(tokens(40)[start : start + 13], session, last_only=False)
        assert bool(logits.isfinite().all())
    tiles = list(session.layers[0].sealed.tiles(dtype))
    assert [tile.start for tile in tiles] == [2]
    assert all(tile.keys.dtype is tile.values.dtype is dtype for tile in tiles)
    parts = session.layers[0].sealed.sides["key"].parts()
    assert parts["outliers"].dtype is dtype


def test_a_model_that_cannot_move_positions_refuses(tiny, monkeypatch):
    model = tiny()
    monkeypatch.setattr(model, "in_cache_refusal", "its layout is unknown")
    with pytest.raises(ConfigError, match="its layout is unknown") as refusal:
        model.new_session(quantizing("int4:head:absmax+prerotary"))
    assert refusal.value.code == "prerotary_refused"
    override = LayerOverride(1, QuantConfig.parse("fp8+prerotary"), QuantConfig())
    with pytest.raises(ConfigError, match="its layout is unknown"):
        model.new_session(quantizing("fp8", overrides=(override,)))
    model.new_session(quantizing("int4:head:absmax", position=Position.ORIGINAL))
