"""The transform is orthonormal and undone exactly; where it helps and where it does not, measured."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvviz.errors import ConfigError
from kvviz.quant import make_quantizer
from kvviz.quant.hadamard import hadamard_matrix
from kvviz.quant_config import QuantConfig, hadamard_block
from tests.oracles.quant_oracle import quantize, unpack_bytes, walsh

BLOCK = 32


def gaussian(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def roundtrip(x: torch.Tensor, spec: str, block: int = BLOCK) -> torch.Tensor:
    tool = make_quantizer(QuantConfig.parse(spec), head_dim=x.shape[-1], block_size=block)
    return tool.dequantize(tool.quantize(x), x.dtype)


@pytest.mark.parametrize("size", [16, 32, 64, 128, 256])
def test_the_matrix_is_its_own_inverse_and_has_one_magnitude(size):
    matrix = hadamard_matrix(size)
    assert (matrix @ matrix - torch.eye(size, dtype=torch.float64)).abs().max() < 1e-14
    assert torch.equal(matrix, matrix.T)
    assert (matrix.abs() - size**-0.5).abs().max() < 1e-16
    assert np.abs(matrix.numpy() - walsh(size)).max() < 1e-15


@pytest.mark.parametrize(
    ("head_dim", "block"), [(16, 16), (64, 64), (80, 16), (96, 32), (128, 128), (160, 32)]
)
def test_blocks_are_the_largest_power_of_two_that_divides(head_dim, block):
    assert hadamard_block(head_dim) == block
    x = gaussian(1, 1, BLOCK, head_dim, seed=1)
    spec = "int8:head:absmax:m32+hadamard"
    tool = make_quantizer(QuantConfig.parse(spec), head_dim=head_dim, block_size=BLOCK)
    scale = np.abs(x[0, 0].numpy() @ walsh(head_dim)).max() / 127
    assert tool.quantize(x)["scales"].item() == np.float32(scale)


@pytest.mark.parametrize(("head_dim", "block"), [(24, 8), (36, 4), (40, 8), (7, 1)])
def test_too_few_channels_are_refused(head_dim, block):
    assert hadamard_block(head_dim) == block
    with pytest.raises(ConfigError, match=f"{head_dim}, which is {block}") as refusal:
        roundtrip(gaussian(1, 1, BLOCK, head_dim), "fp8+hadamard")
    assert refusal.value.code == "quant_hadamard"


@pytest.mark.parametrize("head_dim", [64, 80])
@pytest.mark.parametrize("axis", ["token:g16", "channel:g32", "head", "tensor"])
@pytest.mark.parametrize(
    ("base", "bits", "zero"),
    [("int4:{}:minmax", 4, 0), ("int3:{}:absmax", 3, 3), ("int2:{}:minmax:m32", 2, 0), ("nf4:{}", 4, 0)],
)
def test_codes_and_restored_values_equal_the_oracle(head_dim, axis, base, bits, zero):
    x = gaussian(1, 2, 2 * BLOCK, head_dim, seed=3) * 5 + 1
    spec = base.format(axis) + "+hadamard"
    expected = quantize(x[0].numpy(), spec, BLOCK)
    tool = make_quantizer(QuantConfig.parse(spec), head_dim=head_dim, block_size=BLOCK)
    parts = tool.quantize(x)
    codes = unpack_bytes(parts["codes"][0].numpy(), bits, head_dim)
    assert np.array_equal(codes - zero, expected.codes)
    assert np.abs(tool.dequantize(parts, x.dtype)[0].numpy() - expected.restored).max() <= 1e-12


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
def test_error_is_at_most_half_a_step_of_the_transformed_values(bits):
    x = gaussian(1, 2, BLOCK, 64, seed=5) * 7 + 2
    turn = hadamard_matrix(64)
    for form, axis in (("absmax", -1), ("minmax", -1), ("minmax", -2)):
        grouped = "token:g64" if axis == -1 else f"channel:g{BLOCK}"
        spec = f"int{bits}:{grouped}:{form}:m32+hadamard"
        mixed = x @ turn
        low, high = mixed.amin(axis, keepdim=True), mixed.amax(axis, keepdim=True)
        step = (
            mixed.abs().amax(axis, keepdim=True) / (2 ** (bits - 1) - 1)
            if form == "absmax"
            else (high - low) / (2**bits - 1)
        )
        error = (roundtrip(x, spec) - x) @ turn
        assert (error.abs() <= step / 2 + 1e-5).all()
        assert (error.abs() / step).max() > 0.45


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_product_with_a_query_survives(dtype):
    """Restored in full the transform leaves nothing behind: 8 bits of small groups are within 1 %."""
    x, q = gaussian(1, 2, BLOCK, 64, seed=8, dtype=dtype), gaussian(1, 2, 4, 64, seed=9)
    restored = roundtrip(x, "int8:channel:g8:minmax+hadamard")
    assert restored.dtype is dtype
    exact = q @ x.double().mT
    assert (q @ restored.double().mT - exact).norm() <= 0.01 * exact.norm()
    assert torch.equal(roundtrip(torch.zeros_like(x), "int4:head:absmax+hadamard"), torch.zeros_like(x))


def other_channels(spec: str, shift: float) -> float:
    """Relative error on 63 channels of 128 x 64 Gaussian keys when channel 7 is shifted; mean of 8 seeds."""
    others, total = [c for c in range(64) if c != 7], 0.0
    for seed in range(8):
        x = gaussian(1, 1, 128, 64, seed=seed, dtype=torch.float32)
        x[..., 7] += shift
        error = (roundtrip(x, spec, 64) - x)[..., others]
        total += float(error.norm() / x[..., others].norm()) / 8
    return total


def test_it_helps_against_one_large_channel_and_cannot_hide_a_huge_one():
    """+600 is 75 in each of 64 channels: better than token groups, still larger than the keys themselves. A
    channel group needs no help; what helps there is to keep the channel apart."""
    assert other_channels("int4:token:g64:minmax", 600) == pytest.approx(2.5765, rel=0.05)
    assert other_channels("int4:token:g64:minmax+hadamard", 600) == pytest.approx(1.1063, rel=0.05)
    assert other_channels("int8:token:g64:minmax", 600) == pytest.approx(0.6742, rel=0.05)
    assert other_channels("int8:token:g64:minmax+hadamard", 600) == pytest.approx(0.1715, rel=0.05)
    assert other_channels("int4:channel:g32:minmax+hadamard", 600) == pytest.approx(0.0780, rel=0.05)
    assert other_channels("int4:token:g64:minmax+outliers1+hadamard", 600) == pytest.approx(0.0893, rel=0.05)
    plain, turned = (other_channels(f"int4:token:g64:minmax{m}", 20) for m in ("", "+hadamard"))
    assert (plain, turned) == pytest.approx((0.4269, 0.1733), rel=0.05)
    assert other_channels("int4:token:g64:minmax+hadamard", 0) == pytest.approx(0.0897, rel=0.05)
