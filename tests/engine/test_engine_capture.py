"""What is shown of attention equals what the full-matrix oracle gives."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvviz.config import CacheConfig, Middle, Position, RunConfig
from kvviz.engine import grid, run
from kvviz.engine.capture import Capture
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


def summarised(weights: np.ndarray, sinks: int) -> dict[str, np.ndarray]:
    """What a summary says of maps ``(L, H, rows, rows)``, computed from the whole of them."""
    rows = weights.shape[-1]
    back = np.arange(rows)[:, None] - np.arange(rows)
    return {
        "first_mass": weights[..., 0].mean(-1),
        "sink": weights[..., :sinks].sum(-1).mean(-1),
        "entropy": -np.where(weights > 0, weights * np.log(np.where(weights > 0, weights, 1)), 0)
        .sum(-1)
        .mean(-1),
        "distance": (weights * back).sum(-1).mean(-1),
    }


@pytest.mark.parametrize(("cache", "rule"), CASES)
@pytest.mark.parametrize("chunk", [1, 10, 100])
def test_head_summaries_are_means_over_the_oracle_s_rows(tiny, cache, rule, chunk):
    model = tiny()
    record, events = recorded(model, cache, chunk)
    _, oracle = read_whole(model.network, record.token_ids[:-1], rule, keep_weights=True)
    weights = torch.stack(oracle.weights).numpy()
    states = [event.state for event in events if isinstance(event, TokenGenerated)]
    assert record.head_summary == [state.head_summary for state in states]
    for n, summary in enumerate(record.head_summary):
        rows = len(record.prompt_ids) + n
        assert summary.rows == rows
        expected = summarised(weights[:, :, :rows, :rows], cache.sink_size)
        for name in ("first_mass", "entropy", "distance"):
            got = getattr(summary, name)
            assert got.dtype == np.float32
            np.testing.assert_allclose(got, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
        assert np.abs(summary.tier_mass.sum(-1) - 1).max() < 1e-5
        sink = summary.tier_mass[..., MASS_TIERS.index(Tier.SINK)]
        np.testing.assert_allclose(sink, expected["sink"], atol=1e-6)
    by_row = {MASS_TIERS.index(tier): 0.0 for tier in MASS_TIERS}
    for row in range(rows):
        for span in model.new_session(cache).plan.spans(row + 1):
            if span.tier is not Tier.EVICTED:
                by_row[MASS_TIERS.index(span.tier)] += weights[:, :, row, span.start : span.stop].sum(-1)
    for tier, total in by_row.items():
        np.testing.assert_allclose(record.head_summary[-1].tier_mass[..., tier], total / rows, atol=1e-6)


@pytest.mark.parametrize("sinks", [0, 4])
@pytest.mark.parametrize("prompt", ["a", "ab", "abcdef"])
@pytest.mark.parametrize("middle", [Middle.KEEP, Middle.EVICT, Middle.QUANTIZE])
def test_short_prompts_and_no_sinks_give_numbers(tiny, sinks, prompt, middle):
    cache = CacheConfig(sinks, 1, middle, 2, INT4, INT4)
    record = RunRecord()
    for event in run(tiny(dtype=torch.float32), RunConfig(prompt, cache, "", False, 3)):
        record.apply(event)
    assert len(record.head_summary) == len(record.generated_ids) >= 1
    first = record.head_summary[0]
    for summary in record.head_summary:
        for values in (summary.first_mass, summary.entropy, summary.distance):
            assert np.isfinite(values).all()
            assert (values >= 0).all()
        assert np.abs(summary.tier_mass.sum(-1) - 1).max() < 1e-5
    if prompt == "a":  # its one row can only look at itself
        assert (first.first_mass == 1).all()
        assert (first.distance == 0).all()
        assert first.entropy.max() < 1e-5
    if (sinks, middle) == (0, Middle.EVICT):  # a window of one token: nobody looks back
        assert summary.distance.max() == 0
        assert summary.first_mass == pytest.approx(1 / summary.rows)


@pytest.mark.parametrize("cells", [8, 13, 30])
@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_reduced_maps_are_the_maximum_of_the_full_one(tiny, monkeypatch, cells, chunk):
    model = tiny()
    cache = CASES[3][0]
    full, _ = recorded(model, cache)
    of = CellMap.of
    monkeypatch.setattr(grid.CellMap, "of", lambda *about: of(*about, cells))
    small, events = recorded(model, cache, chunk)
    edges = small.grid.edges
    assert small.grid.tokens_per_cell > 1
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


@given(
    tokens=st.integers(1, 700),
    sinks=st.integers(0, 40),
    new=st.integers(1, 300),
    cells=st.integers(4, 320),
    cuts=st.lists(st.integers(0, 700), max_size=6),
    negative=st.booleans(),
)
def test_cells_cover_all_tokens_and_folding_in_pieces_is_the_maximum(
    tokens, sinks, new, cells, cuts, negative
):
    of = CellMap.of(tokens, sinks, new, cells)
    edges = of.grid().edges
    widths = np.diff(edges)
    assert (edges[0], edges[-1]) == (0, tokens)
    assert (widths > 0).all()
    assert of.cells == len(widths) <= cells
    assert (widths <= of.size).all()
    assert [of.cell(t) for t in range(tokens)] == np.repeat(np.arange(len(widths)), widths).tolist()
    same = CellMap.of_grid(of.grid())
    assert [same.cell(t) for t in range(tokens)] == [of.cell(t) for t in range(tokens)]
    x = torch.rand(2, tokens, generator=torch.Generator().manual_seed(tokens)) - float(negative)
    low = float("-inf") if negative else 0.0
    folded = {axis: torch.full((2, len(widths)), low) for axis in (-1, -2)}
    places = sorted({0, tokens, *(cut for cut in cuts if cut < tokens)})
    for a, b in pairwise(places):
        of.fold(x[:, a:b], a, folded[-1])
        same.fold(x[:, a:b].T, a, folded[-2].T, axis=-2)
    expected = np.maximum.reduceat(x.numpy(), edges[:-1], axis=1)
    assert np.array_equal(folded[-1].numpy(), expected)
    assert np.array_equal(folded[-2].numpy(), expected)


@pytest.mark.parametrize("tokens", [321, 1000, 2049, 8192])
@pytest.mark.parametrize("sinks", [0, 4, 16, 40])
@pytest.mark.parametrize("new", [1, 64, 500])
def test_sinks_and_the_newest_tokens_have_their_own_cells(tokens, sinks, new):
    edges = CellMap.of(tokens, sinks, new).grid().edges
    widths = np.diff(edges)
    own, newest = min(sinks, 16), min(160, 32 + new)
    assert (widths[:own] == 1).all()
    assert (widths[-newest:] == 1).all()
    coarse = widths[own:-newest]
    assert (coarse[:-1] == coarse[0]).all()
    assert 1 <= coarse[-1] <= coarse[0]
    assert len(widths) <= grid.MAX_CELLS == 320


def test_a_long_prompt_needs_no_square_array():
    cells = CellMap.of(8192, 4, 64)
    assert cells.size == cells.grid().tokens_per_cell == 37
    assert cells.cells == 319
    assert CellMap.of(320, 4, 64).grid().tokens_per_cell == 1


def test_scores_far_below_zero_give_numbers(tiny):
    """Rows that see nothing of a part are exact zeros there, however small the other parts' scores are."""
    session = tiny(dtype=torch.float32).new_session(CacheConfig(2, 2))
    cells = CellMap.of(6, 2, 1)
    capture = Capture(n_layers=2, n_heads=4, cells=cells, maps=True)
    session.observer = capture
    step = session.begin(6)
    keys = torch.ones(1, 2, 6, 16)
    session.append(0, keys, keys)
    session.attend(0, -keys.repeat(1, 2, 1, 1), 20.0)
    session.append(1, keys, keys)
    session.attend(1, -keys.repeat(1, 2, 1, 1), 20.0)
    expected = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]  # equal scores of -320
    assert np.abs(capture.rows(0).values - expected).max() < 1e-3
    assert capture.head_summary.rows == step.stop
    assert capture.head_summary.entropy == pytest.approx(np.log(np.arange(1, 7)).mean(), abs=1e-4)
