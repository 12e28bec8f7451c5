"""The compiled kernel and torch's exact attention against the plain tiled read in float64."""

from __future__ import annotations

import itertools

import pytest
import torch

from kvviz.attention import (
    Codes,
    Kernel,
    KernelBuild,
    RowRule,
    Stored,
    Tile,
    attend,
    kernel_build,
    look,
    read,
)
from kvviz.attention.build import SWITCH
from kvviz.config import CacheConfig, Middle, Position
from kvviz.models.sources import cache_folder
from kvviz.quant import make_quantizer
from kvviz.quant_config import QuantConfig

CPU = torch.device("cpu")
BITS, AXES, MAPPINGS = (
    (8, 4, 3, 2),
    ("token:g8", "token:g32", "channel:g16", "head", "tensor"),
    ("absmax", "minmax"),
)
SPECS = ["none", *(f"int{b}:{a}:{m}" for b, a, m in itertools.product(BITS, AXES, MAPPINGS))]
INT8 = QuantConfig.parse("int8:token:g16:absmax")
INT4 = QuantConfig.parse("int4:channel:g4:minmax")


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    built = kernel_build(cache_folder() / "kernels").wait()
    if built.library is None:
        pytest.skip(built.sentence())
    return Kernel(built.library)


class Piece:
    """Consecutive tokens: as stored for the kernel, and restored for the oracle."""

    def __init__(self, start, key, value, rows=(0, None), query=None):
        self.start, self.key, self.value, self.query = start, key, value, query
        tokens = key[1].shape[2]
        low, high = rows[0], start + tokens if rows[1] is None else rows[1]
        self.rows = RowRule.of([low], [high], CPU)

    def stored(self):
        return Stored(self.start, self.key[0], self.value[0])

    def tiles(self):
        return [Tile(self.start, self.key[1], self.value[1])]


class Wide(Piece):
    """The same in float64, in tiles of 100 tokens."""

    def tiles(self):
        for low in range(0, self.key[1].shape[2], 100):
            keys, values = (x[1][:, :, low : low + 100].double() for x in (self.key, self.value))
            yield Tile(self.start + low, keys, values)


def side(spec: str, x: torch.Tensor, block: int = 32):
    """What lies in memory, grown with room to spare, and what it stands for."""
    if spec == "none":
        room = torch.full((*x.shape[:2], x.shape[2] + 5, x.shape[3]), float("nan"))
        room[:, :, : x.shape[2]] = x
        return room[:, :, : x.shape[2]], x
    config = QuantConfig.parse(spec)
    tool = make_quantizer(config, head_dim=x.shape[-1], block_size=block)
    parts, affine = tool.quantize(x), tool.affine
    codes = Codes(parts["codes"], affine.bits, parts["scales"], parts.get("minima"), *affine[1:])
    return codes, tool.dequantize(parts, torch.float64)


def data(heads, kv_heads, tokens, channels, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn(1, h, t, channels, generator=generator)
        for h, t in ((heads, 1), (kv_heads, tokens), (kv_heads, tokens))
    )
    return q * 3, k + 0.5, v - 0.3


def compare(kernel, query, parts, scale=0.125, tolerance=5e-6):
    got = read(query, parts, scale, kernel, keep_scores=True)
    assert got.scores, "the kernel did not read this"
    wide = [Wide(p.start, p.key, p.value, query=None if p.query is None else p.query.double()) for p in parts]
    expected = attend(query.double(), wide, scale, keep_scores=True)
    size = expected.output.abs().max()
    assert (got.output - expected.output).abs().max() <= tolerance * size
    scores = torch.cat([s for _, s in got.scores], -1)
    exact = torch.cat([t.scores for t in expected.kept], -1)
    far = max(1.0, float(exact.abs().max()) / 30)
    assert (scores - exact).abs().max() <= 3e-5 * far
    seen = look(query, parts, scale, got)
    assert (seen.lse - expected.lse).abs().max() <= 3e-5 * far
    assert (seen.mass() - expected.mass()).abs().max() <= 2 * tolerance
    return got


@pytest.mark.parametrize("spec", SPECS)
def test_every_integer_scheme_on_both_sides(kernel, spec):
    query, keys, values = data(6, 2, 352, 64)
    compare(kernel, query, [Piece(0, side(spec, keys), side("none", values))])
    compare(kernel, query, [Piece(0, side("none", keys), side(spec, values))])


@pytest.mark.parametrize("spec", SPECS[1:])
def test_codes_become_the_values_that_the_quantizer_makes_of_them(kernel, spec):
    values = data(6, 2, 352, 64)[1]
    codes, exact = side(spec, values)
    assert kernel.restores(codes, 64, torch.float32)
    restored = kernel.restore(codes, 64)
    # one rounding of each number, in the order of the quantizer
    assert ((restored - exact).abs() <= torch.finfo(torch.float32).eps * values.abs().max()).all()
    assert not kernel.restores(codes, 64, torch.float64)


@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("channels", [8, 16, 80, 128, 256])
def test_query_groups_and_head_sizes(kernel, group, channels):
    query, keys, values = data(2 * group, 2, 64, channels)
    parts = [
        Piece(0, side("int8:head:absmax", keys), side("int4:channel:g32:minmax", values)),
        Piece(64, side("none", keys), side("none", values)),
    ]
    compare(kernel, query, parts, channels**-0.5)


@pytest.mark.parametrize("tokens", [1, 2, 7, 63, 64, 65, 255, 256, 257, 513, 1000])
def test_odd_numbers_of_exact_tokens(kernel, tokens):
    query, keys, values = data(3, 1, tokens, 64)
    compare(kernel, query, [Piece(5, side("none", keys), side("none", values))])


@pytest.mark.parametrize("block", [1, 3, 32, 96])
def test_blocks_of_any_size_and_metadata_of_32_bits(kernel, block):
    query, keys, values = data(4, 2, 3 * 96, 16)
    spec = "int4:tensor:minmax:m32"
    compare(kernel, query, [Piece(0, side(spec, keys, block), side("int2:head:absmax", values, block))])


def test_sinks_may_be_met_by_another_query_and_far_scores_stay_finite(kernel):
    query, keys, values = data(4, 2, 64, 16)
    far = query.neg() * 40  # scores of hundreds: exp must not leave its range
    parts = [
        Piece(0, side("none", keys[:, :, :4]), side("none", values[:, :, :4]), query=far),
        Piece(4, side("int8:token:g16:absmax", keys), side("int8:token:g16:absmax", values)),
    ]
    # a score of 800 is known to 1e-4 in fp32, and so is its weight
    assert torch.isfinite(compare(kernel, query * 30, parts, tolerance=1e-3).output).all()


def test_threads_and_keeping_scores_change_no_bit(kernel):
    query, keys, values = data(9, 3, 3000, 64)
    parts = [Piece(0, side("none", keys), side("none", values))]
    threads = torch.get_num_threads()
    try:
        outputs = []
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            outputs += [read(query, parts, 0.1, kernel, keep_scores=keep).output for keep in (False, True)]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(outputs[0], other) for other in outputs)


def test_what_the_kernel_cannot_read_is_left_to_the_plain_way(kernel):
    query, keys, values = data(4, 2, 64, 16)
    narrow = Piece(0, side("int4:token:g4:absmax", keys), side("none", values))
    hidden = Piece(0, side("none", keys), side("none", values), rows=(1, 64))
    assert not kernel.fits(query, [narrow.stored()])  # groups of 4 channels
    assert not kernel.fits(query.double(), [hidden.stored()])
    assert not kernel.fits(query[..., :12], [hidden.stored()])
    got = read(query, [hidden], 0.25, kernel, keep_scores=True)
    assert got.scores == []
    assert (got.output - attend(query, [hidden], 0.25).output).abs().max() < 1e-5


@pytest.mark.parametrize("rows", [1, 5, 64])
@pytest.mark.parametrize("shape", [(4, 4), (4, 2), (9, 3)])
def test_many_rows_agree_with_the_tiled_read(rows, shape):
    """Causal rows, a window's band, and rows that see nothing of a part."""
    generator = torch.Generator().manual_seed(1)
    tokens, heads, kv_heads = 100, *shape
    query = torch.randn(1, heads, rows, 64, generator=generator)
    keys, values = (torch.randn(1, kv_heads, tokens, 64, generator=generator) for _ in range(2))
    last = [tokens - rows + r for r in range(rows)]
    bounds = [
        ([0] * rows, [min(20, max(0, r - 60)) for r in last], 0, 20),
        ([max(20, r - 30) for r in last], [r + 1 for r in last], 20, tokens),
    ]
    parts = []
    for low, high, start, stop in bounds:
        part = Piece(start, (None, keys[:, :, start:stop]), (None, values[:, :, start:stop]))
        part.rows = RowRule.of(low, high, CPU)
        parts.append(part)
    got = read(query, parts, 0.3, None)
    expected = attend(query, parts, 0.3, keep_scores=True)
    assert (got.output - expected.output).abs().max() <= 5e-6
    seen = look(query, parts, 0.3, got)
    assert (seen.lse - expected.lse).abs().max() <= 5e-6
    assert (seen.mass() - expected.mass()).abs().max() <= 1e-6


@pytest.mark.parametrize("before", [0, 3, 40])
@pytest.mark.parametrize("window", [None, 150])
def test_a_chunk_of_more_rows_than_share_a_mask_agrees_in_float64(before, window):
    """Sinks and the rest, whose first rows stand before its first token when the chunk begins the text; in a
    window the rest starts later for each row, and the newest rows see nothing of its oldest tokens."""
    generator = torch.Generator().manual_seed(before)
    rows, sinks = 600, 4
    tokens = before + rows
    query = torch.randn(1, 4, rows, 64, generator=generator)
    keys, values = (torch.randn(1, 2, tokens, 64, generator=generator) for _ in range(2))
    last = range(before, tokens)
    first = [sinks if window is None else max(sinks, r - window) for r in last]
    parts, wide = [], []
    for low, high, start, stop in (
        ([0] * rows, [min(sinks, r + 1) for r in last], 0, sinks),
        (first, [r + 1 for r in last], sinks, tokens),
    ):
        sides = [(None, x[:, :, start:stop]) for x in (keys, values)]
        for kind, made in ((Piece, parts), (Wide, wide)):
            piece = kind(start, *sides)
            piece.rows = RowRule.of(low, high, CPU)
            made.append(piece)
    got = read(query, parts, 0.125, None)
    expected = attend(query.double(), wide, 0.125)
    assert (got.output - expected.output).abs().max() <= 2e-6
    assert parts[1].rows.is_causal(sinks, tokens) == (window is None)


def test_rows_are_causal_only_where_they_are_the_newest_tokens():
    def rule(low, high):
        return RowRule.of(low, high, CPU)

    own = rule([0, 0, 0], [8, 9, 10])
    assert own.is_causal(0, 10)
    assert own.is_causal(9, 10)  # two rows see nothing of it
    assert not own.is_causal(0, 11)  # a token that nobody sees
    assert not rule([0, 0, 0], [8, 8, 10]).is_causal(0, 10)
    assert not rule([0, 0, 8], [8, 9, 10]).is_causal(0, 10)  # one row no longer sees the first
    assert rule([4, 4, 4], [8, 9, 10]).is_causal(4, 10)
    assert rule([4, 4, 4], [8, 9, 10]).is_causal(0, 10)  # tokens 0 to 3 are older than the rows


SESSIONS = [
    CacheConfig(2, 8, Middle.KEEP),
    CacheConfig(2, 8, Middle.EVICT, position=Position.IN_CACHE),
    CacheConfig(2, 8, Middle.QUANTIZE, 4, INT8, INT4),
    CacheConfig(0, 8, Middle.QUANTIZE, 4, INT4, INT8),
    CacheConfig(2, 8, Middle.QUANTIZE, 4, INT8, QuantConfig()),
    CacheConfig(2, 8, Middle.QUANTIZE, 4, QuantConfig.parse("nf4:token:g16"), INT8),
]


def logits(model, config, kernel, observer=None, *, fast=True):
    session = model.new_session(config)
    session.kernel, session.observer, session._fast = kernel, observer, fast
    ids = torch.randint(0, 256, (60,), generator=torch.Generator().manual_seed(3)).tolist()
    rows = [model.forward(ids[:30], session, last_only=False)]
    rows += [model.forward([token], session, last_only=True) for token in ids[30:]]
    sides = [side.parts() for layer in session.layers for side in layer.sealed.sides.values()]
    codes = [x.flatten().float() for parts in sides for part, x in parts.items() if part != "exact"]
    return torch.cat(rows), torch.cat(codes) if codes else torch.zeros(1)


@pytest.mark.parametrize("config", SESSIONS)
def test_a_run_scores_the_same_through_the_kernel_without_it_and_tile_by_tile(tiny, kernel, config):
    model = tiny(dtype=torch.float32)
    fast, codes = logits(model, config, kernel)
    for other, its_codes in (logits(model, config, None), logits(model, config, None, fast=False)):
        flipped = float((codes != its_codes).float().mean())
        assert flipped <= 0.003  # rounding moves few values over the border between two codes or scales
        assert (fast - other).abs().max() < (1e-2 if flipped else 2e-4)
    watched, _ = logits(model, config, kernel, lambda layer, result, step: list(result.weights()))
    assert torch.equal(fast, watched)


def test_a_growing_context_compiles_nothing(tiny, kernel, monkeypatch):
    model = tiny(dtype=torch.float32)
    session = model.new_session(SESSIONS[2])
    assert session.kernel is not None

    def refuse(*args, **kwargs):
        raise AssertionError("something was compiled")

    monkeypatch.setattr("kvviz.attention.build.subprocess.run", refuse)
    for length in (40, 1, 1, 300, 1, 1):
        model.forward(list(range(length % 256)) or [1], session, last_only=True)
    again = model.new_session(SESSIONS[3])
    assert again.kernel is session.kernel


def test_a_step_allocates_little_beside_the_cache(kernel):
    query, keys, values = data(9, 3, 8192, 64)
    spec = "int8:token:g64:absmax"
    parts = [Piece(0, side(spec, keys), side(spec, values))]
    read(query, parts, 0.1, kernel)
    with torch.profiler.profile(profile_memory=True) as watched:
        read(query, parts, 0.1, kernel, keep_scores=True)
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in watched.key_averages())
    assert 0 < allocated < 0.15 * 2 * keys.nbytes  # of one layer's fp32 K and V; of 30 layers' under 0.5 %


# -- building --------------------------------------------------------------------------------------------


def test_no_compiler_works_at_eager_speed(tmp_path, monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    built = KernelBuild(tmp_path, compiler="no-such-compiler-anywhere").wait()
    assert (built.state, built.library) == ("no_compiler", None)
    assert "compiler" in built.sentence()
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_fails_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    fake = tmp_path / "cc"
    fake.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    fake.chmod(0o755)
    built = KernelBuild(tmp_path / "kept", compiler=str(fake)).wait()
    assert (built.state, built.detail) == ("failed", "broken")
    assert list((tmp_path / "kept").iterdir()) == []


def test_it_is_compiled_once_and_kept(tmp_path, kernel, monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    first = KernelBuild(tmp_path / "kept").wait()
    assert first.state == "compiled"
    (kept,) = (tmp_path / "kept").iterdir()
    assert KernelBuild(tmp_path / "kept").wait().state == "kept"
    kept.chmod(0o666)  # somebody else could have written it: never loaded
    assert KernelBuild(tmp_path / "kept", compiler="no-such-compiler-anywhere").wait().library is None


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path, kernel, monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    (tmp_path / "file").write_text("")
    assert KernelBuild(tmp_path / "file" / "kept").wait().state == "compiled"


def test_it_can_be_switched_off(tmp_path, monkeypatch):
    monkeypatch.setenv(SWITCH, "off")
    build = KernelBuild(tmp_path)
    assert not build.is_done
    assert build.wait().state == "off"
    assert build.is_done
