"""Outliers kept apart: which, how they are stored, and what the rest gains."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvviz.quant import make_quantizer
from kvviz.quant_config import QuantConfig
from tests.oracles.quant_oracle import quantize, unpack_bytes

BLOCK = 32


def gaussian(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def quantizer(spec: str, head_dim: int, block: int = BLOCK, dtype: torch.dtype | None = None):
    return make_quantizer(QuantConfig.parse(spec), head_dim=head_dim, block_size=block, dtype=dtype)


def roundtrip(x: torch.Tensor, spec: str, block: int = BLOCK) -> torch.Tensor:
    tool = quantizer(spec, x.shape[-1], block)
    return tool.dequantize(tool.quantize(x), x.dtype)


@pytest.mark.parametrize("axis", ["token:g16", "token:g80", "channel:g32", "channel:g8", "head", "tensor"])
@pytest.mark.parametrize("modifiers", ["+outliers1", "+outliers7.5", "+outliers3+hadamard"])
@pytest.mark.parametrize(
    ("base", "bits", "zero"), [("int4:{}:absmax", 4, 7), ("int3:{}:minmax:m32", 3, 0), ("nf4:{}", 4, 0)]
)
def test_every_axis_equals_the_oracle(axis, modifiers, base, bits, zero):
    x = gaussian(1, 2, 2 * BLOCK, 80, seed=3) * 5 + 1
    spec = base.format(axis) + modifiers
    expected = quantize(x[0].numpy(), spec, BLOCK)
    tool = quantizer(spec, 80)
    parts = tool.quantize(x)
    restored = tool.dequantize(parts, x.dtype)[0].numpy()
    assert np.abs(restored - expected.restored).max() <= 1e-12
    assert np.array_equal(restored[expected.outliers], x[0].numpy()[expected.outliers])
    codes = unpack_bytes(parts["codes"][0].numpy(), bits, 80) - zero
    # without a transform, the code of a value that is stored exactly says nothing
    meant = ~expected.outliers if "hadamard" not in modifiers else np.ones_like(expected.outliers)
    assert np.array_equal(codes[meant], expected.codes[meant])
    assert parts["outliers"].numel() == parts["outlier_places"].numel() == expected.outliers.sum()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_outliers_are_stored_exactly_in_the_run_s_dtype(dtype):
    x = gaussian(1, 2, BLOCK, 64, seed=4, dtype=dtype)
    x[0, 1, 5, 9], x[0, 0, 31, 63] = 1000, -3000
    tool = quantizer("int4:token:g32:absmax+outliers1", 64)
    parts = tool.quantize(x)
    assert parts["outliers"].dtype is dtype
    assert parts["outliers"].shape == parts["outlier_places"].shape == (1, 2, BLOCK, 2, 1)
    assert tool.tokens_per_row == {"codes": 1, "scales": 1, "outliers": 1, "outlier_places": 1}
    restored = tool.dequantize(parts, dtype)
    assert restored.dtype is dtype
    assert (restored[0, 1, 5, 9], restored[0, 0, 31, 63]) == (1000, -3000)
    largest = x.unflatten(-1, (2, 32)).abs().argmax(-1)
    assert torch.equal(parts["outlier_places"][..., 0].long(), largest)
    unrotated = quantizer("int4:token:g32:absmax+outliers1", 64, dtype=dtype).quantize(x.float())
    assert unrotated["outliers"].dtype is dtype  # what comes wide is stored in the run's dtype all the same


@pytest.mark.parametrize(
    ("axis", "block", "kind", "tokens", "count"),
    [
        ("token:g64", 64, torch.uint8, 1, 1),
        ("token:g256", 64, torch.uint8, 1, 3),
        ("channel:g64", 64, torch.uint8, 64, 1),
        ("head", 2, torch.uint16, 2, 5),
        ("tensor", 64, torch.uint16, 64, 492),
        ("tensor", 128, torch.int32, 128, 983),
    ],
)
def test_places_take_the_smallest_integer_type(axis, block, kind, tokens, count):
    x = gaussian(1, 3, block, 256, seed=1, dtype=torch.float32)
    spec = f"int4:{axis}:absmax+outliers1"
    tool = quantizer(spec, 256, block)
    parts = tool.quantize(x)
    assert parts["outlier_places"].dtype is kind
    assert parts["outliers"].shape[-1] == count
    assert tool.tokens_per_row["outliers"] == tool.tokens_per_row["outlier_places"] == tokens
    expected = quantize(x[0].numpy(), spec, block)
    restored = tool.dequantize(parts, x.dtype)[0].numpy()
    assert np.array_equal(restored[expected.outliers], x[0].numpy()[expected.outliers])


def test_of_equal_magnitudes_the_first_is_kept_apart():
    x = torch.full((1, 1, BLOCK, 16), 2.0)
    x[..., 1::2] = -2.0
    tool = quantizer("int4:token:g16:absmax+outliers12.5", 16)
    assert tool.quantize(x)["outlier_places"][0, 0, :, 0].tolist() == [[0, 1]] * BLOCK
    assert torch.equal(roundtrip(x * 3.5, "int4:token:g16:absmax:m32+outliers12.5"), x * 3.5)


@pytest.mark.parametrize("axis", ["token:g16", "channel:g16", "head", "tensor"])
def test_zero_constant_and_one_value_groups_come_back(axis):
    zero = torch.zeros(1, 2, BLOCK, 32)
    for value in (0.0, 3.0, -600.0):
        assert torch.equal(roundtrip(zero + value, f"int3:{axis}:minmax+outliers1"), zero + value)
        assert torch.equal(roundtrip(zero + value, f"nf4:{axis}+outliers50"), zero + value)
    x = gaussian(1, 2, BLOCK, 32, seed=2)
    assert torch.equal(roundtrip(x, "int2:channel:g1:absmax+outliers1"), x)  # every group is its own outlier
    assert (roundtrip(x, "int4:token:g2:minmax:m32+outliers50") - x).abs().max() < 1e-6


def test_removed_values_set_no_scale():
    """Without its largest value a group has the scale that it would have had without it."""
    x = gaussian(1, 1, BLOCK, 16, seed=6)
    spiked = x.clone()
    spiked[..., 3] = 1e6
    others = [c for c in range(16) if c != 3]
    for spec in ("int4:token:g16:absmax:m32+outliers1", "int4:token:g16:minmax:m32+outliers1"):
        parts = quantizer(spec, 16).quantize(spiked)
        rest = x[..., others]
        if "absmax" in spec:
            expected = rest.abs().amax(-1) / 7
        else:
            expected = (rest.amax(-1) - rest.amin(-1)) / 15
            assert torch.equal(parts["minima"][..., 0], rest.amin(-1).float())
        assert torch.equal(parts["scales"][..., 0], expected.float())
    shifted = gaussian(1, 1, BLOCK, 16, seed=7) + 600  # a zero in the hole would span 600 values
    parts = quantizer("int4:token:g16:minmax:m32+outliers1", 16).quantize(shifted)
    assert parts["scales"].max() < 0.4


def test_the_shifted_channel_no_longer_wipes_out_its_neighbours():
    """Keys of 128 x 64 with +600 in channel 7, 4 bits: relative error on the other 63 channels."""
    others = [c for c in range(64) if c != 7]
    found: dict[str, list[float]] = {}
    specs = [
        "int4:token:g64:minmax", "int4:token:g64:minmax+outliers1", "int4:token:g64:absmax+outliers1",
        "int8:token:g64:minmax+outliers1", "nf4:token:g64+outliers1",
    ]  # fmt: skip
    for seed in range(8):
        x = gaussian(1, 1, 128, 64, seed=seed, dtype=torch.float32)
        x[..., 7] += 600
        for spec in specs:
            error = (roundtrip(x, spec, 64) - x)[..., others]
            found.setdefault(spec, []).append(float(error.norm() / x[..., others].norm()))
    mean = [sum(found[spec]) / 8 for spec in specs]
    assert mean == pytest.approx([2.5765, 0.0896, 0.1082, 0.00527, 0.0921], rel=0.05)
