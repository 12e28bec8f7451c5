"""Attention over parts equals attention over the whole, and looking changes nothing."""

from __future__ import annotations

import pytest
import torch

from kvviz.attention import RowRule, Tile, attend, difference, rotate
from kvviz.config import CacheConfig, Middle, Offload, Position
from kvviz.quant_config import QuantConfig

INT8 = QuantConfig.parse("int8:token:g16:absmax")
CONFIGS = [
    CacheConfig(2, 4, Middle.KEEP),
    CacheConfig(2, 4, Middle.EVICT, position=Position.IN_CACHE),
    CacheConfig(2, 4, Middle.QUANTIZE, 4, INT8, INT8, offload=Offload.HOST),
]


class Piece:
    """Some positions, cut into tiles of ``size``."""

    def __init__(self, keys, values, start, low, high, size, query=None):
        self.rows = RowRule.of(low, high, torch.device("cpu"))
        self.query = query
        self._tiles = [
            Tile(start + t, keys[:, :, t : t + size], values[:, :, t : t + size])
            for t in range(0, keys.shape[2], size)
        ]

    def tiles(self):
        return self._tiles


def data(dtype=torch.float64, rows=6, tokens=14):
    generator = torch.Generator().manual_seed(0)
    make = lambda heads, n: torch.randn(1, heads, n, 8, generator=generator, dtype=torch.float64).to(dtype)  # noqa: E731
    return make(4, rows), make(2, tokens), make(2, tokens)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
@pytest.mark.parametrize("size", [1, 3, 14])
def test_parts_merge_exactly(dtype, tolerance, size):
    query, keys, values = data(dtype)
    rows = range(8, 14)
    parts = [
        Piece(keys[:, :, :3], values[:, :, :3], 0, [0] * 6, [3] * 6, size),
        Piece(keys[:, :, 3:9], values[:, :, 3:9], 3, [3] * 6, [min(9, r + 1) for r in rows], size),
        Piece(keys[:, :, 9:], values[:, :, 9:], 9, [9] * 6, [r + 1 for r in rows], size),
    ]
    got = attend(query, parts, 0.5, keep_scores=True)
    k, v = keys.repeat_interleave(2, 1), values.repeat_interleave(2, 1)
    hidden = torch.arange(14)[None] > torch.tensor(list(rows))[:, None]
    scores = (query @ k.mT * 0.5).masked_fill(hidden, -torch.inf)
    share = scores.softmax(-1)
    assert (got.output - share @ v).abs().max() <= tolerance
    assert (got.lse - scores.logsumexp(-1)).abs().max() <= 10 * tolerance
    weights = torch.cat([w for _, w in got.weights()], dim=-1)
    assert (weights - share).abs().max() <= tolerance
    mass = torch.stack([share[..., a:b].sum(-1) for a, b in ((0, 3), (3, 9), (9, 14))])
    assert (got.mass() - mass).abs().max() <= 10 * tolerance
    assert bool((got.mass()[2, ..., 0] == 0).all())  # row 8 sees nothing of the last part


def test_a_row_may_see_nothing_of_a_part_and_stay_finite():
    query, keys, values = data()
    parts = [
        Piece(keys[:, :, :1], values[:, :, :1], 0, [0] * 6, [1] * 6, 4),
        Piece(keys[:, :, 1:], values[:, :, 1:], 1, [14] * 6, [14] * 6, 4),
    ]
    got = attend(query, parts, 1.0)
    assert (got.output - values[:, :, :1].repeat_interleave(2, 1)).abs().max() <= 1e-14
    assert got.mass()[1].abs().max() == 0.0


def test_no_part_is_an_error():
    with pytest.raises(ValueError, match="no parts"):
        attend(data()[0], [], 1.0)


def test_a_turn_undoes_and_does():
    angle = torch.rand(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 6
    other = angle.flip(0) * 1.7
    pair = lambda a: (torch.cat((a, a), -1).cos(), torch.cat((a, a), -1).sin())  # noqa: E731
    x = torch.randn(1, 2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    turned = rotate(rotate(x, *pair(angle)), *difference(*pair(angle), *pair(other)))
    assert (turned - rotate(x, *pair(other))).abs().max() <= 1e-14
    assert torch.equal(turned[..., 6:], x[..., 6:])  # dimensions that do not rotate pass


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("chunk", [6, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_causal_and_sum_to_one(tiny, config, chunk, dtype):
    model, ids = tiny(dtype=dtype), [5, 6, 7, 8, 9, 10] * 3
    session = model.new_session(config)
    rows_seen = []

    def watch(layer, result, step):
        full = torch.zeros(result.lse.shape[1], step.stop - step.first, step.stop)
        for start, weights in result.weights():
            full[..., start : start + weights.shape[-1]] += weights[0]
        assert (full.sum(-1) - 1).abs().max() <= 1e-6
        future = torch.arange(step.stop)[None] > torch.arange(step.first, step.stop)[:, None]
        assert full[:, future].abs().sum() == 0
        rows_seen.append((layer, step.first, step.stop))

    session.observer = watch
    for start in range(0, 18, chunk):
        model.forward(ids[start : start + chunk], session, last_only=True)
    assert len(rows_seen) == 2 * 18 // chunk


@pytest.mark.parametrize("config", CONFIGS)
def test_looking_changes_no_bit_of_the_logits(tiny, config):
    model, ids = tiny(dtype=torch.float32), list(range(40))
    plain, watched = model.new_session(config), model.new_session(config)
    watched.observer = lambda layer, result, step: list(result.weights())
    for start in (0, 17, 34, 35, 36, 37, 38, 39):
        stop = {0: 17, 17: 34}.get(start, start + 1)
        a = model.forward(ids[start:stop], plain, last_only=False)
        b = model.forward(ids[start:stop], watched, last_only=False)
        assert torch.equal(a, b)
