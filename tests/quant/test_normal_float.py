"""The NormalFloat codebook is the published one, and codes are its nearest values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvviz.quant import make_quantizer
from kvviz.quant.normal_float import normal_float_values
from kvviz.quant_config import QuantConfig
from tests.oracles.quant_oracle import NF4_VALUES, quantize, unpack_bytes

BLOCK = 32
#: arXiv:2305.14314, appendix E: the data type as printed there (fp32)
PUBLISHED = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
]  # fmt: skip


def gaussian(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def quantizer(spec: str, head_dim: int):
    return make_quantizer(QuantConfig.parse(spec), head_dim=head_dim, block_size=BLOCK)


def roundtrip(x: torch.Tensor, spec: str) -> torch.Tensor:
    tool = quantizer(spec, x.shape[-1])
    return tool.dequantize(tool.quantize(x), x.dtype)


def test_the_values_are_the_published_ones():
    values = normal_float_values()
    assert np.abs(np.array(values) - PUBLISHED).max() < 2e-7
    assert np.abs(np.array(values) - NF4_VALUES).max() < 1e-14
    assert (values[0], values[7], values[15]) == (-1.0, 0.0, 1.0)


@pytest.mark.parametrize("axis", ["token:g16", "token:g80", "channel:g32", "channel:g8", "head", "tensor"])
@pytest.mark.parametrize("meta", ["", ":m32"])
def test_every_axis_equals_the_oracle(axis, meta):
    x = gaussian(1, 2, 2 * BLOCK, 80, seed=3) * 5
    spec = f"nf4:{axis}{meta}"
    expected = quantize(x[0].numpy(), spec, BLOCK)
    tool = quantizer(spec, 80)
    parts = tool.quantize(x)
    assert set(parts) == set(tool.tokens_per_row) == {"codes", "scales"}
    assert np.array_equal(unpack_bytes(parts["codes"][0].numpy(), 4, 80), expected.codes)
    stored = tool.grouping.load(parts["scales"]).double().expand_as(tool.grouping.split(x))
    assert np.array_equal(tool.grouping.join(stored)[0].numpy(), expected.scale)
    assert np.abs(tool.dequantize(parts, x.dtype)[0].numpy() - expected.restored).max() <= 1e-13


def test_halfway_between_two_values_is_the_lower_one():
    values = torch.tensor(normal_float_values(), dtype=torch.float64)
    x = torch.ones(1, 1, BLOCK, 16, dtype=torch.float64)  # the last value keeps the scale at 1
    x[..., :15] = (values[1:] + values[:-1]) / 2
    parts = quantizer("nf4:token:g16", 16).quantize(x)
    assert unpack_bytes(parts["codes"][0, 0].numpy(), 4, 16)[0].tolist() == [*range(15), 15]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_its_own_values_zeros_and_constants_come_back(dtype):
    values = torch.tensor(normal_float_values(), dtype=torch.float64).repeat(BLOCK, 1)[None, None]
    assert torch.equal(roundtrip(values.to(dtype), "nf4:token:g16"), values.to(dtype))
    zero = torch.zeros(1, 2, BLOCK, 32, dtype=dtype)
    for axis in ("token:g32", "channel:g16", "head", "tensor"):
        assert torch.equal(roundtrip(zero, f"nf4:{axis}"), zero)
        for value in (3.0, -3.0, 600.0):
            assert torch.equal(roundtrip(zero + value, f"nf4:{axis}"), zero + value)


def test_it_beats_even_steps_on_gaussian_values_and_not_on_a_flat_distribution():
    def error(x: torch.Tensor, spec: str) -> float:
        return float((roundtrip(x, spec) - x).norm() / x.norm())

    normal = gaussian(1, 2, 16 * BLOCK, 64, seed=1)
    flat = torch.rand(normal.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 2 - 1
    assert error(normal, "nf4:token:g64") == pytest.approx(0.0919, rel=0.02)
    assert error(normal, "int4:token:g64:absmax") == pytest.approx(0.1077, rel=0.02)
    assert error(flat, "nf4:token:g64") == pytest.approx(0.0917, rel=0.02)
    assert error(flat, "int4:token:g64:absmax") == pytest.approx(0.0698, rel=0.02)
