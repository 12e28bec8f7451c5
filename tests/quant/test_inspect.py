"""A quantizer laid open says what the oracle says, value by value."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvviz.quant import calibrate_side, inspect, make_quantizer
from kvviz.quant_config import QuantConfig
from tests.oracles.quant_oracle import E4M3_VALUES, NF4_VALUES, quantize, walsh

BLOCK, DIM = 32, 16


def keys(seed: int = 0) -> torch.Tensor:
    x = torch.randn(1, 2, 2 * BLOCK, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x[0, 1, :, 7] += 600
    return x


def laid_open(spec: str, x: torch.Tensor, calibration=None):
    return inspect(x, QuantConfig.parse(spec), block_size=BLOCK, calibration=calibration)


@pytest.mark.parametrize(
    "spec",
    [
        "int4:token:g16:absmax", "int3:channel:g16:minmax", "int8:tensor:absmax:m32", "int2:head:minmax",
        "nf4:token:g8", "fp8", "int4:token:g16:minmax+hadamard", "int4:channel:g32:absmax+outliers5",
        "nf4:head+outliers1+hadamard",
    ],
)  # fmt: skip
def test_codes_and_values_are_the_oracle_s(spec):
    x = keys()
    found, expected = laid_open(spec, x), quantize(x[0].numpy(), spec, BLOCK)
    np.testing.assert_allclose(found.restored[0], expected.restored, rtol=0, atol=1e-9)
    base = spec.split("+")[0]
    shift = 2 ** (QuantConfig.parse(spec).bits - 1) - 1 if "absmax" in base else 0  # stored without a sign
    kept = found.kept[0].numpy()
    assert kept.any() == ("outliers" in spec)
    if expected.outliers is not None:
        assert np.array_equal(kept, expected.outliers)
    coded = ~kept if "hadamard" not in spec else np.ones_like(kept)
    assert np.array_equal(found.codes[0].numpy()[coded], (expected.codes + shift)[coded])
    turn = walsh(DIM) if "hadamard" in spec else np.eye(DIM)
    if "outliers" not in spec:
        np.testing.assert_allclose(found.given[0], x[0].numpy() @ turn, atol=1e-9)
        np.testing.assert_allclose(found.decoded[0], expected.restored @ turn, atol=1e-9)
    nearest = (found.steps[..., None] - found.levels).abs().min(-1).values
    lost = (found.given - found.decoded).abs()
    scale = torch.from_numpy(np.ascontiguousarray(expected.scale))
    clipped = (found.steps > found.levels[-1]) | (found.steps < found.levels[0])
    torch.testing.assert_close((nearest * scale)[~clipped], lost[~clipped], rtol=1e-6, atol=1e-9)


def test_levels_are_those_of_the_format():
    x = keys()
    assert laid_open("int3:token:g16:absmax", x).levels.tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert laid_open("int2:token:g16:minmax", x).levels.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(laid_open("nf4:token:g16", x).levels, NF4_VALUES, atol=1e-7)
    np.testing.assert_array_equal(
        laid_open("fp8", x).levels, np.unique(E4M3_VALUES[np.isfinite(E4M3_VALUES)])
    )


def test_static_scales_clip_and_the_guard_keeps():
    plain = keys()
    spec = "int4:channel:g32:minmax:m32+static+guard1"
    calibration = calibrate_side(plain, QuantConfig.parse(spec), head_dim=DIM, block_size=BLOCK)
    wild = plain.clone()
    wild[0, 0, 3, 2] = 50.0
    found = laid_open(spec, wild, calibration)
    assert bool(found.kept[0, 0, 3, 2])
    assert found.restored[0, 0, 3, 2] == 50.0
    assert found.steps[0, 0, 3, 2] > found.levels[-1] == 15
    assert int(found.codes[0, 0, 3, 2]) == 15


def test_nothing_is_coded_by_none():
    with pytest.raises(ValueError, match="nothing"):
        laid_open("none", keys())


def test_looking_changes_nothing():
    x, config = keys(3), QuantConfig.parse("int4:token:g8:minmax+outliers5+hadamard")
    tool = make_quantizer(config, head_dim=DIM, block_size=BLOCK)
    assert torch.equal(laid_open(config.spec, x).restored, tool.dequantize(tool.quantize(x), x.dtype))
