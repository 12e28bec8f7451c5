"""Properties over the whole grammar of quantizers: packing, half a step, finite numbers, bits, more bits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.quant import calibrate_side, make_quantizer
from kvviz.quant.packing import pack, packed_length, unpack
from kvviz.quant_config import QuantConfig
from tests.oracles.quant_oracle import quantize, unpack_bytes

BLOCK, DIM = 16, 16
AXES = ("token:g16", "token:g8", "channel:g16", "channel:g8", "head", "tensor")
INTEGERS = tuple(
    f"int{bits}:{axis}:{mapping}:m32"
    for bits, axis, mapping in itertools.product((8, 4, 3, 2), AXES, ("absmax", "minmax"))
)
MODIFIERS = ("", "+outliers1", "+outliers10", "+hadamard", "+outliers5+hadamard")


@st.composite
def specs(draw: st.DrawFn) -> str:
    """Any scheme with 32-bit metadata, any modifiers that go together."""
    axis = draw(st.sampled_from(AXES))
    base = draw(st.sampled_from(["int8", "int4", "int3", "int2", "nuq4", "nuq3", "nuq2", "nf4", "fp8"]))
    mapping = draw(st.sampled_from([":absmax", ":minmax"])) if base.startswith("int") else ""
    modifiers = draw(
        st.sampled_from(
            [*MODIFIERS, "+static", "+static+guard3", "+hadamard+static+guard", "+outliers1+static"]
        )
    )
    return f"{base}:{axis}{mapping}:m32{modifiers}"


def gaussian(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tool_for(spec: str, learnt_on: torch.Tensor, head_dim: int = DIM, block: int = BLOCK):
    config = QuantConfig.parse(spec)
    calibration = None
    if config.needs_calibration:
        calibration = calibrate_side(learnt_on, config, head_dim=head_dim, block_size=block)
    return make_quantizer(config, head_dim=head_dim, block_size=block, calibration=calibration)


@given(
    bits=st.sampled_from([8, 4, 3, 2]),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 97)),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=80)
def test_packing_is_bit_exact_at_every_width_and_odd_size(bits, shape, seed):
    codes = torch.randint(0, 1 << bits, shape, generator=torch.Generator().manual_seed(seed)).to(torch.uint8)
    packed = pack(codes, bits)
    assert packed.shape[-1] == packed_length(shape[-1], bits) == (shape[-1] * bits + 7) // 8
    assert torch.equal(unpack(packed, bits, shape[-1]), codes)
    assert np.array_equal(unpack_bytes(packed.numpy(), bits, shape[-1]), codes.numpy())
    if shape[-1] * bits % 8:  # nothing in the bits to spare
        assert int(packed[..., -1].max()) < 1 << (shape[-1] * bits % 8)


@given(
    spec=st.sampled_from(INTEGERS),
    exponent=st.floats(-6, 6),
    shift=st.floats(-3, 3),
    seed=st.integers(0, 1000),
)
@settings(max_examples=80)
def test_error_is_within_half_a_stored_step(spec, exponent, shift, seed):
    """With 32-bit metadata; the slack is what such a scale and minimum can be off by."""
    size = 10**exponent
    x = (gaussian(1, 2, 2 * BLOCK, DIM, seed=seed) + shift) * size
    tool = tool_for(spec, x)
    error = (tool.dequantize(tool.quantize(x), x.dtype) - x)[0].abs().numpy()
    step = quantize(x[0].numpy(), spec, BLOCK).scale
    assert (error <= step / 2 + 2.0**-22 * float(x.abs().max())).all()


@given(
    spec=specs(),
    exponents=st.tuples(st.floats(-30, 30), st.floats(-30, 30)),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
@settings(max_examples=120)
def test_what_is_restored_is_always_finite(spec, exponents, seed, dtype):
    """fp32 and bf16 up to 1e30, fp16 up to its largest: values of all sizes side by side."""
    size = 10 ** torch.linspace(*exponents, DIM, dtype=torch.float64)
    largest = 65504.0 if dtype is torch.float16 else 1e30
    x = (gaussian(1, 2, 2 * BLOCK, DIM, seed=seed) * size).clamp(-largest, largest).to(dtype)
    learnt_on = (gaussian(1, 2, 2 * BLOCK, DIM, seed=seed + 1) * size).clamp(-largest, largest).to(dtype)
    tool = tool_for(spec, learnt_on)
    restored = tool.dequantize(tool.quantize(x), dtype)
    assert restored.dtype is dtype
    assert bool(restored.isfinite().all())


@pytest.mark.parametrize("modifiers", MODIFIERS)
@pytest.mark.parametrize("base", ["int{}:token:g64:absmax", "int{}:channel:g32:minmax", "nuq{}:token:g64"])
def test_gaussian_error_falls_by_17_tenths_with_each_bit(base, modifiers):
    x = gaussian(1, 2, 256, 64, seed=3)
    error = {}
    for bits in (2, 3, 4) + ((8,) if base.startswith("int") else ()):
        tool = tool_for(base.format(bits) + modifiers, x, 64, 64)
        error[bits] = float((tool.dequantize(tool.quantize(x), x.dtype) - x).norm() / x.norm())
    for fewer, more in itertools.pairwise(error):
        assert error[fewer] >= 1.7 ** (more - fewer) * error[more], (fewer, more, error)


@given(spec=specs(), blocks=st.integers(1, 3), heads=st.integers(1, 3))
@settings(max_examples=60)
def test_stored_bits_are_those_of_the_rule(spec, blocks, heads):
    """Codes, scales and minima, exact values and their places, by hand; fp32 values."""
    x = gaussian(1, heads, blocks * BLOCK, DIM, seed=1).float()
    tool = tool_for(spec, x)
    stored = sum(part.numel() * part.element_size() for part in tool.quantize(x).values())
    config = QuantConfig.parse(spec)
    numbers = heads * blocks * BLOCK * DIM
    size = {"token": config.group_size, "channel": config.group_size, "head": BLOCK * DIM}.get(
        config.axis.value, heads * BLOCK * DIM
    )
    groups = numbers // size
    codes = heads * blocks * BLOCK * ((DIM * config.bits + 7) // 8)
    has_minimum = config.codec == "nuq" or (config.codec == "int" and ":minmax" in spec)
    metadata = 0 if config.static else 4 * groups * (1 + has_minimum)
    places = 1 if size <= 256 else 2
    apart = groups * config.outliers_of(size) * (4 + places) if config.outlier_percent else 0
    guard = heads * blocks * config.guarded_of(BLOCK * DIM) * (4 + 1) if config.guard_percent else 0
    assert stored == codes + metadata + apart + guard
