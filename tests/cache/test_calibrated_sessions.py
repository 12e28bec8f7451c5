"""Sessions whose quantizers were calibrated: what is learnt from which tokens, bytes, feedings, refusals."""

from __future__ import annotations

import threading

import pytest
import torch

from kvviz.cache.calibrate import calibration_of, sealable
from kvviz.config import CacheConfig, LayerOverride, Middle, RunConfig
from kvviz.engine import calibrate, run
from kvviz.errors import ConfigError, KvvizError
from kvviz.quant_config import QuantConfig


def tokens(count: int, seed: int = 1) -> list[int]:
    return torch.randint(0, 256, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def quantizing(key: str, value: str = "none", **more) -> CacheConfig:
    return CacheConfig(2, 4, Middle.QUANTIZE, 8, QuantConfig.parse(key), QuantConfig.parse(value), **more)


STATIC = quantizing("int4:channel:g8:minmax+static", "nuq4:token:g16")


def test_scales_are_the_ranges_of_the_calibration_text(tiny):
    model = tiny()
    ids = tokens(37)
    calibration = calibrate(model, ids, STATIC, chunk_size=10)
    assert calibration.tokens == 37
    assert sorted(calibration.sides) == [(0, "key"), (0, "value"), (1, "key"), (1, "value")]
    session = model.new_session(CacheConfig())
    model.forward(ids, session, last_only=True)
    for layer in range(2):
        keys = session.layers[layer].exact("key")[:, :, 2:34]  # without sinks, whole blocks only
        side = calibration.side(layer, "key")
        assert torch.equal(side.minimum[0, :, 0, 0, :, 0], keys.amin(2)[0].half())
        widths = ((keys.amax(2) - keys.amin(2)) / 15)[0].half()
        assert torch.equal(side.scale[0, :, 0, 0, :, 0], widths)
        levels = calibration.side(layer, "value").levels
        assert levels.shape == (16,)
        assert (levels.diff() > 0).all()
    scales, codebook = 2 * 2 * 16 * 2, 16 * 4  # two of them for 2 heads x 16 channels in 16 bits; 16 in fp32
    assert calibration.n_bytes == 2 * (scales + codebook)


@pytest.mark.parametrize("lengths", [[45], [7, 1, 20, 17], [1] * 45])
def test_feeding_does_not_matter(tiny, lengths):
    model = tiny()
    calibration = calibrate(model, tokens(60, seed=2), STATIC)
    ids = tokens(45)
    whole = model.new_session(STATIC, calibration=calibration)
    expected = model.forward(ids, whole, last_only=False)
    session, start, rows = model.new_session(STATIC, calibration=calibration), 0, []
    for length in lengths:
        rows.append(model.forward(ids[start : start + length], session, last_only=False))
        start += length
    assert (torch.cat(rows) - expected).abs().max() < 1e-9
    for part, stored in session.layers[1].sealed.sides["key"].parts().items():
        assert torch.equal(stored, whole.layers[1].sealed.sides["key"].parts()[part])
    exact = model.forward(ids, model.new_session(CacheConfig()), last_only=False)
    assert (expected - exact).abs().max() > 1e-3


def test_only_codes_are_stored_and_counted(tiny):
    model = tiny()
    cache = quantizing("int4:channel:g8:minmax+static", "int4:token:g16:minmax+static")
    session = model.new_session(cache, calibration=calibrate(model, tokens(40), cache))
    model.forward(tokens(45), session, last_only=True)
    memory = session.memory()
    assert memory.effective_bits == 4.0
    assert memory.used["device"]["quantized"] == {"codes": 2 * 2 * 40 * 2 * 16 // 2 // 1 * 32 // 40}
    guarded = quantizing("int4:channel:g8:minmax+static+guard1", "int4:token:g16:minmax+static")
    session = model.new_session(guarded, calibration=calibrate(model, tokens(40), cache))
    model.forward(tokens(45), session, last_only=True)
    # 128 values in a block of a head hold one place: 8 bytes and 1 for where it is, on one side of two
    assert session.memory().effective_bits == 4.0 + 9 * 8 / 128 / 2


def test_keys_before_rotary_are_calibrated_before_rotary(tiny):
    model = tiny()
    cache = quantizing("int4:channel:g8:minmax:m32+prerotary+static")
    session = model.new_session(CacheConfig())
    model.forward([65] * 40, session, last_only=True)
    side = calibration_of(session, cache).side(0, "key")
    spread = side.scale.abs().max()  # in layer 0 equal tokens have equal keys but for the rotation
    assert spread < 1e-5
    turned = calibration_of(session, quantizing("int4:channel:g8:minmax:m32+static")).side(0, "key")
    assert turned.scale.max() > 0.05
    assert sealable(session, cache, 0, "key").shape == (1, 2, 32, 16)


def test_what_is_missing_is_refused_before_anything_runs(tiny):
    model = tiny()
    with pytest.raises(ConfigError) as refused:
        model.new_session(STATIC)
    assert refused.value.code == "calibration_missing"
    with pytest.raises(ConfigError) as refused:
        run(model, RunConfig("hello", STATIC))
    assert refused.value.code == "calibration_missing"
    override = LayerOverride(1, QuantConfig.parse("nuq2:head"), QuantConfig())
    with pytest.raises(ConfigError) as refused:
        model.new_session(quantizing("none", overrides=(override,)))
    assert refused.value.code == "calibration_missing"
    model.new_session(CacheConfig(key=STATIC.key))  # nothing is sealed
    with pytest.raises(ConfigError) as refused:
        calibrate(model, tokens(9), STATIC)
    assert (refused.value.code, refused.value.values["least"]) == ("calibration_short", 10)
    with pytest.raises(ConfigError) as refused:
        calibration_of(model.new_session(quantizing("none")), STATIC)
    assert refused.value.code == "calibration_exact"
    stop = threading.Event()
    stop.set()
    with pytest.raises(KvvizError) as stopped:
        calibrate(model, tokens(20), STATIC, stop=stop)
    assert stopped.value.code == "score_stopped"
