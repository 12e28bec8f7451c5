"""Static scales, codebooks by k-means and the guard: what they learn, what they store, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvviz.errors import ConfigError
from kvviz.quant import calibrate_side, make_quantizer, outside, unguarded
from kvviz.quant.codebook import k_means
from kvviz.quant.hadamard import hadamard_matrix
from kvviz.quant_config import QuantConfig

BLOCK, DIM = 32, 16


def gaussian(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def learnt(spec: str, x: torch.Tensor):
    return calibrate_side(x, QuantConfig.parse(spec), head_dim=DIM, block_size=BLOCK)


def made(spec: str, calibration, dtype: torch.dtype | None = None):
    config = QuantConfig.parse(spec)
    return make_quantizer(config, head_dim=DIM, block_size=BLOCK, dtype=dtype, calibration=calibration)


def roundtrip(spec: str, calibration, x: torch.Tensor) -> torch.Tensor:
    tool = made(spec, calibration)
    return tool.dequantize(tool.quantize(x), x.dtype)


@pytest.mark.parametrize(
    ("axis", "shape", "reduced"),
    [
        ("token:g8", (1, 2, 1, 1, 2, 1), (3, 5)), ("channel:g16", (1, 2, 1, 1, DIM, 1), (3, 5)),
        ("head", (1, 2, 1, 1, 1, 1), (3, 5)), ("tensor", (1, 1, 1, 1, 1, 1), (1, 3, 5)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mapping", ["absmax", "minmax"])
def test_one_scale_for_all_tokens(axis, shape, reduced, mapping):
    x = gaussian(1, 2, 3 * BLOCK, DIM) * 3 + 1
    calibration = learnt(f"int4:{axis}:{mapping}:m32+static", x)
    groups = x.reshape(1, 2, 1, 3 * BLOCK, shape[4], DIM // shape[4])
    if mapping == "absmax":
        expected = groups.abs().amax(reduced, keepdim=True) / 7
        assert calibration.minimum is None
    else:
        expected = (groups.amax(reduced, keepdim=True) - groups.amin(reduced, keepdim=True)) / 15
        assert torch.equal(calibration.minimum, groups.amin(reduced, keepdim=True).float())
    assert calibration.scale.shape == shape
    assert torch.equal(calibration.scale, expected.float())
    assert calibration.n_bytes == 4 * expected.numel() * (1 if mapping == "absmax" else 2)


@pytest.mark.parametrize("axis", ["token:g8", "channel:g16", "head", "tensor"])
@pytest.mark.parametrize("scheme", ["int4:{}:absmax:m32", "int3:{}:minmax:m32", "nf4:{}:m32", "fp8:{}:m32"])
def test_static_equals_dynamic_on_one_group_s_own_text(axis, scheme):
    """Where a dynamic group is as large as the calibration text, both have the same scales."""
    x = gaussian(1, 2, BLOCK, DIM, seed=1)
    spec = scheme.format({"channel:g16": f"channel:g{BLOCK}"}.get(axis, axis))
    if axis.startswith("token"):  # here only if all tokens have the same range
        x = x[:, :, :1].expand(1, 2, BLOCK, DIM).contiguous()
    calibration = learnt(f"{spec}+static", x)
    static = made(f"{spec}+static", calibration)
    parts = static.quantize(x)
    assert parts.keys() == static.tokens_per_row.keys() == {"codes"}
    dynamic = make_quantizer(QuantConfig.parse(spec), head_dim=DIM, block_size=BLOCK)
    assert torch.equal(parts["codes"], dynamic.quantize(x)["codes"])
    restored = dynamic.dequantize(dynamic.quantize(x), x.dtype)
    assert torch.equal(static.dequantize(parts, x.dtype), restored)


def test_what_lies_outside_is_clipped_and_counted():
    x = gaussian(1, 2, 2 * BLOCK, DIM, seed=2)
    spec = "int4:channel:g32:minmax:m32+static"
    calibration = learnt(spec, x)
    config = QuantConfig.parse(spec)
    assert not outside(x * 0.999, config, calibration, block_size=BLOCK).any()
    wilder = gaussian(1, 2, 2 * BLOCK, DIM, seed=3) * 2
    low, high = x.amin(2, keepdim=True), x.amax(2, keepdim=True)
    mask = outside(wilder, config, calibration, block_size=BLOCK)
    away = (wilder < low - 1e-6) | (wilder > high + 1e-6)
    assert torch.equal(mask, away)
    assert 0.1 < mask.double().mean() < 0.5
    restored = roundtrip(spec, calibration, wilder)
    assert (restored - wilder.clamp(low, high)).abs().max() < (high - low).max() / 30 + 1e-5
    assert float((restored - wilder)[mask].abs().max()) > 1  # clipping is what hurts


def test_a_guard_stores_the_farthest_values_exactly():
    x, wilder = gaussian(1, 2, BLOCK, DIM, seed=4), gaussian(1, 2, 2 * BLOCK, DIM, seed=5)
    wilder[0, 0, 3, 5], wilder[0, 0, 40, 1], wilder[0, 1, 8, 2] = 50.0, -70.0, 90.0
    spec = "int4:head:minmax:m32+static"
    calibration = learnt(spec, x)
    guarded = made(f"{spec}+guard2", calibration)
    parts = guarded.quantize(wilder)
    places = round(0.02 * BLOCK * DIM)
    assert parts["outliers"].shape == parts["outlier_places"].shape == (1, 2, 2, 1, places)
    assert guarded.tokens_per_row == {"codes": 1, "outliers": BLOCK, "outlier_places": BLOCK}
    restored = guarded.dequantize(parts, wilder.dtype)
    mask = outside(wilder, QuantConfig.parse(spec), calibration, block_size=BLOCK)
    left = unguarded(mask, guarded.config, block_size=BLOCK)
    assert left.shape == (1, 2, 2)
    counts = mask.reshape(1, 2, 2, -1).sum(-1)
    assert torch.equal(left, (counts - places).clamp(min=0))
    assert not left.any()
    assert torch.equal(restored[mask], wilder[mask])  # all of them found a place
    plain = roundtrip(spec, calibration, wilder)
    rest = restored != wilder
    assert torch.equal(restored[rest], plain[rest])
    assert (plain - wilder).abs().max() > 60
    assert (restored - wilder).abs().max() < 0.5


def test_a_guard_that_is_too_small_takes_the_worst_and_says_how_many_are_left():
    x, wilder = gaussian(1, 1, BLOCK, DIM, seed=6), gaussian(1, 1, BLOCK, DIM, seed=7) * 4
    spec = "int4:tensor:absmax:m32+static"
    calibration = learnt(spec, x)
    config = QuantConfig.parse(spec + "+guard1")
    mask = outside(wilder, config, calibration, block_size=BLOCK)
    assert int(mask.sum()) > 100
    assert int(unguarded(mask, config, block_size=BLOCK)) == int(mask.sum()) - 5
    error = (roundtrip(config.spec, calibration, wilder) - wilder).abs().flatten()
    worst = wilder.abs().flatten().argsort(descending=True)
    assert (error[worst[:5]] == 0).all()
    assert error[worst[5]] > 1


@pytest.mark.parametrize("modifiers", ["+hadamard", "+outliers5", "+outliers5+hadamard"])
def test_scales_are_learnt_from_what_the_scheme_is_given(modifiers):
    x = gaussian(1, 1, BLOCK, DIM, seed=8)
    x[..., 3] += 40
    calibration = learnt(f"int4:token:g16:absmax:m32{modifiers}+static", x)
    plain = x.clone()
    if "outliers" in modifiers:  # the one large channel is one value of 16 in every group
        places = plain.abs().argsort(-1)
        plain.scatter_(-1, places[..., -1:], plain.gather(-1, places[..., :1]))
    if "hadamard" in modifiers:
        plain = plain @ hadamard_matrix(DIM)
    assert float(calibration.scale) == pytest.approx(float(plain.abs().max()) / 7, rel=1e-6)
    error = roundtrip(f"int4:token:g16:absmax:m32{modifiers}+static", calibration, x) - x
    assert error.abs().max() < 40 / 7 / 2 if "outliers" not in modifiers else 0.6


def test_k_means_finds_the_clusters_and_never_gets_worse_than_its_start():
    values = torch.cat(
        [torch.full((n,), c, dtype=torch.float64) for n, c in ((25, -3.0), (30, 0.5), (20, 0.75), (25, 9.0))]
    )
    assert k_means(values[torch.randperm(100, generator=torch.Generator().manual_seed(0))], 4).tolist() == [
        -3.0,
        0.5,
        0.75,
        9.0,
    ]
    x = gaussian(5000, seed=9)
    means = k_means(x, 8)
    nearest = (x[:, None] - means).abs().argmin(1)
    for cluster in range(8):  # each is the mean of what is nearest to it
        assert float(x[nearest == cluster].mean()) == pytest.approx(float(means[cluster]), abs=1e-9)
    error = float((x - means[nearest]).square().mean())
    assert error == pytest.approx(0.03454, rel=0.1)  # Lloyd-Max: 8 levels for a normal distribution
    assert k_means(torch.zeros(7), 4).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "spec", ["nuq4:channel:g32", "nuq3:token:g16:m32", "nuq2:head", "nuq4:tensor+static"]
)
def test_a_codebook_gives_back_the_nearest_of_its_values(spec):
    x = gaussian(1, 2, 2 * BLOCK, DIM, seed=10) ** 3
    calibration = learnt(spec, x)
    config = QuantConfig.parse(spec)
    assert calibration.levels.shape == (1 << config.bits,)
    tool = made(spec, calibration)
    parts = tool.quantize(x)
    assert parts["codes"].shape == (1, 2, 2 * BLOCK, DIM * config.bits // 8)
    if config.static:
        low, scale = calibration.minimum.double(), calibration.scale.double()
        low, scale = low.reshape(()), scale.reshape(())
    else:
        grouping = tool.grouping
        scale = grouping.load(parts["scales"]).double()
        low = grouping.load(parts["minima"]).double()
        scale = grouping.join(scale.expand(grouping.split(x).shape))
        low = grouping.join(low.expand(grouping.split(x).shape))
    choices = low[..., None] + scale[..., None] * calibration.levels.double()
    nearest = (choices - x[..., None]).abs().amin(-1)
    restored = tool.dequantize(parts, x.dtype)
    assert np.allclose((restored - x).abs(), nearest, atol=1e-9)


def test_a_codebook_beats_even_steps_on_values_that_crowd():
    x, other = (gaussian(1, 2, 4 * BLOCK, DIM, seed=seed) ** 4 for seed in (11, 12))
    calibration = learnt("nuq4:channel:g32", x)
    even = make_quantizer(QuantConfig.parse("int4:channel:g32:minmax"), head_dim=DIM, block_size=BLOCK)
    error = (even.dequantize(even.quantize(other), other.dtype) - other).norm()
    assert (roundtrip("nuq4:channel:g32", calibration, other) - other).norm() < 0.8 * error


def test_calibrations_that_are_missing_or_of_another_spec_are_refused():
    calibration = learnt("int4:head:minmax+static", gaussian(1, 1, BLOCK, DIM))
    for spec, code in (
        ("int4:head:minmax+static", "calibration_missing"), ("nuq4:head", "calibration_missing"),
        ("int3:head:minmax+static", "calibration_other"),
        ("int4:head:minmax+hadamard+static", "calibration_other"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as refused:
            made(spec, None if code == "calibration_missing" else calibration)
        assert refused.value.code == code
    made("int4:head:minmax+static+guard3", calibration)  # a guard learns nothing


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_static_round_trip_is_finite_in_every_dtype(dtype):
    x = gaussian(1, 2, BLOCK, DIM, seed=13).to(dtype)
    for spec in ("int2:channel:g32:minmax+static+guard5", "nuq3:token:g16+hadamard+static", "fp8+static"):
        tool = made(spec, learnt(spec, x), dtype)
        restored = tool.dequantize(tool.quantize(x * 1000), dtype)
        assert restored.dtype is dtype
        assert torch.isfinite(restored).all()
