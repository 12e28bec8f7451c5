"""What every scheme promises: error falls with each bit, nothing overflows, bits are stored bits."""

from __future__ import annotations

import pytest
import torch

from kvviz.quant import make_quantizer
from kvviz.quant_config import QuantConfig

BLOCK = 64
SCHEMES = (
    "fp8", "nf4:token:g64", "nf4:channel:g32", "nf4:head",
    "int8:token:g64:absmax", "int4:token:g64:minmax", "int3:token:g64:absmax", "int3:channel:g32:minmax",
    "int3:head:minmax", "int2:tensor:absmax", "int2:channel:g64:minmax",
    "int4:token:g64:absmax+outliers1", "nf4:channel:g32+outliers5", "fp8+outliers0.5",
    "int3:tensor:minmax+outliers0.1", "int4:token:g64:minmax+hadamard", "int3:channel:g32:absmax+hadamard",
    "fp8+hadamard", "nf4:token:g64+outliers1+hadamard",
)  # fmt: skip


def gaussian(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def quantizer(spec: str, head_dim: int = 64):
    return make_quantizer(QuantConfig.parse(spec), head_dim=head_dim, block_size=BLOCK)


def roundtrip(x: torch.Tensor, spec: str) -> torch.Tensor:
    tool = quantizer(spec, x.shape[-1])
    return tool.dequantize(tool.quantize(x), x.dtype)


def wide(spec: str) -> str:
    """The same scheme with 32-bit metadata."""
    base, plus, modifiers = spec.partition("+")
    return f"{base}:m32{plus}{modifiers}"


@pytest.mark.parametrize("axis", ["token:g64", "token:g16", "channel:g32", "head", "tensor"])
@pytest.mark.parametrize("mapping", ["absmax", "minmax"])
def test_gaussian_error_falls_with_every_bit(axis, mapping):
    x = gaussian(1, 2, 2 * BLOCK, 64, seed=11)
    error = {
        bits: float((roundtrip(x, f"int{bits}:{axis}:{mapping}") - x).norm() / x.norm())
        for bits in (2, 3, 4, 8)
    }
    for fewer, more in ((2, 3), (3, 4), (4, 8)):
        assert error[fewer] >= 1.7 ** (more - fewer) * error[more], (fewer, more)


@pytest.mark.parametrize("spec", SCHEMES)
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_any_fp32_input_up_to_1e30_stays_finite_and_near(spec, size):
    x = gaussian(1, 2, BLOCK, 64, seed=5, dtype=torch.float32) / 6 * size
    x[0, 0, 3, 5], x[0, 1, 60, 63] = size, -size
    spec = wide(spec)
    restored = roundtrip(x, spec)
    assert bool(restored.isfinite().all())
    assert (restored - x).abs().max() <= 0.51 * size
    assert bool(roundtrip(-x, spec).isfinite().all())


@pytest.mark.parametrize("spec", SCHEMES)
def test_any_half_precision_input_stays_finite(spec):
    """fp16 up to its largest number, bf16 up to 1e30, with metadata of either width."""
    for dtype, largest in ((torch.float16, 65504.0), (torch.bfloat16, 1e30)):
        x = (gaussian(1, 2, BLOCK, 64, seed=6) / 6 * largest).clamp(-largest, largest).to(dtype)
        x[0, 0, 3, 5], x[0, 1, 60, 63] = largest, -largest
        for full in (spec, wide(spec)):
            for signed in (x, -x, torch.full_like(x, largest), torch.full_like(x, -largest)):
                restored = roundtrip(signed, full)
                assert restored.dtype is dtype
                assert bool(restored.isfinite().all()), (dtype, full)


@pytest.mark.parametrize(
    ("spec", "bits"),
    [
        ("int3:token:g64:absmax", 3 + 16 / 64),
        ("int3:token:g16:minmax", 3 + 32 / 16),
        ("int3:channel:g32:minmax:m32", 3 + 64 / 32),
        ("int3:tensor:absmax", 3 + 16 / (3 * 64 * 64)),
        ("nf4:token:g64", 4 + 16 / 64),
        ("nf4:channel:g16", 4 + 16 / 16),
        ("nf4:head:m32", 4 + 32 / (64 * 64)),
        ("int4:token:g64:absmax+outliers1", 4 + (16 + 64 + 8) / 64),  # fp64 here
        ("int4:channel:g32:minmax+outliers7", 4 + (32 + 2 * (64 + 8)) / 32),
        ("int4:head:absmax+outliers1", 4 + (16 + 41 * (64 + 16)) / 4096),
        ("fp8+outliers1", 8 + (16 + 123 * (64 + 16)) / (3 * 4096)),
        ("int4:token:g64:absmax+hadamard", 4 + 16 / 64),
        ("nf4:token:g64+outliers1+hadamard", 4 + (16 + 64 + 8) / 64),
    ],
)
def test_bits_of_a_number_are_what_is_stored(spec, bits):
    """Three heads of head_dim 64, blocks of 64 tokens."""
    parts = quantizer(spec).quantize(gaussian(1, 3, 4 * BLOCK, 64))
    stored = sum(part.numel() * part.element_size() for part in parts.values())
    assert 8 * stored / (3 * 4 * BLOCK * 64) == bits


def test_three_bit_rows_that_do_not_fill_their_bytes():
    """head_dim 20: 60 bits take 8 bytes, and nothing leaks into the next token."""
    x = gaussian(1, 1, BLOCK, 20, seed=8)
    tool = quantizer("int3:channel:g64:minmax:m32", 20)
    parts = tool.quantize(x)
    assert parts["codes"].shape == (1, 1, BLOCK, 8)
    step = (x.amax(2) - x.amin(2)) / 7
    assert ((tool.dequantize(parts, x.dtype) - x).abs() <= step[:, :, None] / 2 + 1e-6).all()
