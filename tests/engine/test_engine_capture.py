"""What is shown of attention equals what the full-matrix oracle gives."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from kvviz.config import CacheConfig, Middle, Position, RunConfig
from kvviz.engine import grid, run
from kvviz.engine.grid import CellMap
from kvviz.events import MASS_TIERS, AttentionRows, Tier, TokenGenerated
from kvviz.quant_config import QuantConfig
from kvviz.record import RunRecord
from tests.oracles.model_oracle import Rule, read_whole

INT4 = QuantConfig.parse("int4:token:g16:minmax")
PROMPT = "the prompt of these maps, a few dozen bytes"
CASES = [
    (CacheConfig(3, 6, Middle.KEEP), Rule(3, 6)),
    (CacheConfig(3, 6, Middle.EVICT), Rule(3, 6, "evict")),
    (CacheConfig(3, 6, Middle.EVICT, position=Position.IN_CACHE), Rule(3, 6, "evict", in_cache=True)),
    (CacheConfig(3, 6, Middle.QUANTIZE, 4, INT4, INT4), Rule(3, 6, "quantize", 4, INT4.spec, INT4.spec)),
]


def recorded(model, cache: CacheConfig, chunk: int = 10) -> tuple[RunRecord, list]:
    record, events = RunRecord(), []
    config = RunConfig(PROMPT, cache, use_chat_template=False, max_new_tokens=9, chunk_size=chunk)
    for event in run(model, config):
        record.apply(event)
        events.append(event)
    return record, events


@pytest.mark.parametrize(("cache", "rule"), CASES)
def test_the_full_map_is_the_oracle_s_weights(tiny, cache, rule):
    model = tiny()
    record, events = recorded(model, cache)
    rows = record.token_ids[:-1]  # the newest token has no row
    assert len(rows) == len(record.token_ids) - 1
    _, oracle = read_whole(model.network, rows, rule, keep_weights=True)
    expected = torch.stack(oracle.weights).numpy()
    assert record.grid.tokens_per_cell == 1
    got = record.attention[:, :, : len(rows), : len(rows)].astype(np.float64)
    assert np.abs(got - expected).max() <= 2.5e-4  # half a step of float16 below 1
    assert (record.attention[:, :, len(rows) :] == 0).all()
    assert np.abs(got.sum(-1) - 1).max() < 5e-3  # float16 cells
    for n, event in enumerate(e for e in events if isinstance(e, TokenGenerated)):
        newest = expected[:, :, len(record.prompt_ids) - 1 + n]
        received = event.state.received
        assert received.sum() == pytest.approx(1, abs=1e-5)
        assert np.abs(received - newest.mean((0, 1))[: len(received)]).max() < 1e-5
        mass = event.state.tier_mass
        assert np.abs(mass.sum(-1) - 1).max() < 1e-5
        for span in event.state.spans:
            if span.tier is Tier.EVICTED:
                assert received[span.start : span.stop].sum() == 0
                continue
            share = newest[..., span.start : span.stop].sum(-1)
            assert np.abs(mass[..., MASS_TIERS.index(span.tier)] - share).max() < 1e-5


@pytest.mark.parametrize("cells", [8, 13, 30])
@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_reduced_maps_are_the_maximum_of_the_full_one(tiny, monkeypatch, cells, chunk):
    model = tiny()
    cache = CASES[3][0]
    full, _ = recorded(model, cache)
    of = CellMap.of
    monkeypatch.setattr(grid.CellMap, "of", lambda tokens, sinks: of(tokens, sinks, cells))
    small, events = recorded(model, cache, chunk)
    edges = small.grid.edges
    assert len(edges) - 1 <= cells
    assert small.token_ids == full.token_ids
    assert edges[-1] == len(PROMPT) + 9
    expected = np.stack(
        [
            np.stack(
                [full.attention[:, :, a:b, c:d].max((2, 3)) for c, d in pairwise(edges)],
                -1,
            )
            for a, b in pairwise(edges)
        ],
        2,
    )
    assert np.array_equal(small.attention, expected)
    assert all(e.values.dtype == np.float16 for e in events if isinstance(e, AttentionRows))


def test_cells_cover_all_tokens_once():
    for tokens in (1, 3, 16, 17, 255, 256, 257, 1000, 8192):
        for sinks in (0, 1, 4, 16, 40):
            cells = CellMap.of(tokens, sinks)
            edges = cells.grid().edges
            assert edges[0] == 0
            assert edges[-1] == tokens
            assert (np.diff(edges) > 0).all()
            assert len(edges) - 1 <= grid.MAX_CELLS
            for token in {0, tokens // 2, tokens - 1}:
                cell = cells.cell(token)
                assert edges[cell] <= token < edges[cell + 1]


def test_a_long_prompt_needs_no_square_array():
    assert CellMap.of(8192, 4).size == 33
    assert len(CellMap.of(8192, 4).grid().edges) - 1 <= 256
