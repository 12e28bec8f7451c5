"""What is recomputed is what was: tiles and logit maps against the oracle and the run's own map."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest
import torch

from kvviz.cache import CacheSession
from kvviz.config import CacheConfig, Middle, Position, Prefill, RunConfig
from kvviz.engine import exact_tile, grid, logit_map, run
from kvviz.engine.grid import CellMap
from kvviz.errors import ConfigError, KvvizError
from kvviz.quant_config import QuantConfig
from kvviz.record import RunRecord
from tests.oracles.angles import exact_angles
from tests.oracles.model_oracle import Rule, read_whole

INT4 = QuantConfig.parse("int4:token:g16:minmax")
PROMPT = "tiles of this prompt, a few dozen bytes"
N_PROMPT, N_NEW = len(PROMPT), 9
N_ROWS = N_PROMPT + N_NEW - 1
EXACT = CacheConfig(3, 6, Middle.QUANTIZE, 4, INT4, INT4, prefill=Prefill.EXACT)
CASES = [
    (CacheConfig(3, 6, Middle.KEEP), Rule(3, 6)),
    (CacheConfig(0, 6, Middle.EVICT), Rule(0, 6, "evict")),
    (CacheConfig(3, 6, Middle.EVICT, position=Position.IN_CACHE), Rule(3, 6, "evict", in_cache=True)),
    (CacheConfig(3, 6, Middle.QUANTIZE, 4, INT4, INT4), Rule(3, 6, "quantize", 4, INT4.spec, INT4.spec)),
    (EXACT, Rule(3, 6, "quantize", 4, INT4.spec, INT4.spec, exact_prompt=N_PROMPT)),
]
IDS = ["keep", "evict without sinks", "evict in_cache", "quantize", "quantize, exact prefill"]
#: rows and columns: all of it, the sinks, the middle of prompt and generated rows, the newest, past the end
TILES = [
    ((0, N_ROWS), (0, N_ROWS)),
    ((0, 3), (0, 4)),
    ((20, 43), (2, 30)),
    ((N_ROWS - 1, N_ROWS), (5, N_ROWS)),
    ((40, 400), (30, 300)),
]


@pytest.fixture
def model(tiny):
    """Float64, angles too: a turn back and forth must be exact."""
    made = tiny()
    with exact_angles(made.network):
        yield made


def recorded(model, cache: CacheConfig, prompt: str = PROMPT, chunk: int = 10, new: int = N_NEW) -> RunRecord:
    record = RunRecord()
    config = RunConfig(prompt, cache, use_chat_template=False, max_new_tokens=new, chunk_size=chunk)
    for event in run(model, config):
        record.apply(event)
    return record


def oracle(model, record, rule) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and logits, ``(L, H, rows, rows)``."""
    _, found = read_whole(model.network, record.token_ids[: record.rows], rule, keep_weights=True)
    return torch.stack(found.weights).numpy(), torch.stack(found.logits).numpy()


def close(got: np.ndarray, expected: np.ndarray) -> bool:
    """Equal to 1e-9, or to what float32 can hold; ``-inf`` in the same places."""
    return bool(np.isclose(got, expected.astype(np.float32), rtol=2.4e-7, atol=1e-9).all())


@pytest.mark.parametrize(("cache", "rule"), CASES, ids=IDS)
@pytest.mark.parametrize("layer", [0, 1])
def test_tiles_are_the_oracle_s(model, cache, rule, layer):
    record = recorded(model, cache)
    assert record.rows == N_ROWS
    probability, logits = oracle(model, record, rule)
    for rows, columns in TILES:
        tile = exact_tile(model, record, layer=layer, rows=rows, columns=columns)
        rows, columns = ((first, min(stop, N_ROWS)) for first, stop in (rows, columns))
        place = (layer, slice(None), slice(*rows), slice(*columns))
        assert (tile.layer, tile.first_row, tile.first_column) == (layer, rows[0], columns[0])
        assert tile.probability.dtype == tile.logits.dtype == np.float32
        assert close(tile.probability, probability[place])
        assert close(tile.logits, logits[place])
        unseen = np.isneginf(logits[place])
        assert np.array_equal(tile.probability == 0, unseen)
        assert np.array_equal(np.isneginf(tile.logits), unseen)
        stored = record.attention[place]
        assert np.abs(tile.probability - stored).max() <= 2.5e-4


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "phi3"])
def test_every_family_can_be_read_up_to_a_layer(tiny, family):
    model = tiny(family)
    record = recorded(model, CASES[3][0])
    probability, logits = oracle(model, record, CASES[3][1])
    tile = exact_tile(model, record, layer=0, rows=(0, N_ROWS), columns=(0, N_ROWS))
    assert close(tile.probability, probability[0])
    assert close(tile.logits, logits[0])


@pytest.mark.parametrize(("cache", "rule"), CASES, ids=IDS)
@pytest.mark.parametrize("cells", [14, 320])
def test_logit_maps_are_the_oracle_s_maxima(model, monkeypatch, cache, rule, cells):
    of = CellMap.of
    monkeypatch.setattr(grid.CellMap, "of", lambda *about: of(*about, cells))
    record = recorded(model, cache)
    _, logits = oracle(model, record, rule)
    found = logit_map(model, record, layer=1)
    whole = np.full((4, N_PROMPT + N_NEW, N_PROMPT + N_NEW), -np.inf)
    whole[:, :N_ROWS, :N_ROWS] = logits[1]
    starts = record.grid.edges[:-1]
    expected = np.maximum.reduceat(np.maximum.reduceat(whole, starts, axis=1), starts, axis=2)
    assert (record.grid.tokens_per_cell > 1) == (cells == 14)
    assert (found.layer, found.values.dtype) == (1, np.float32)
    assert close(found.values, expected)


@pytest.mark.parametrize("prompt", ["a", "ab"])
@pytest.mark.parametrize(("cache", "rule"), CASES[:4], ids=IDS[:4])
def test_short_prompts(model, cache, rule, prompt):
    record = recorded(model, cache, prompt, new=2)
    probability, logits = oracle(model, record, rule)
    assert record.rows == len(prompt) + 1
    tile = exact_tile(model, record, layer=1, rows=(0, 200), columns=(0, 200))
    assert close(tile.probability, probability[1])
    assert close(logit_map(model, record, layer=1).values[:, : record.rows, : record.rows], logits[1])


def test_a_replay_reads_no_deeper_and_no_later_than_it_must(tiny, monkeypatch):
    model = tiny(n_layers=4)
    record = recorded(model, CASES[3][0])
    held, told = [], []
    reset = CacheSession.reset

    def counting(session: CacheSession) -> None:
        if getattr(session, "seen_tokens", 0):
            held.append([len(layer.recent["key"]) + layer.sealed.tokens for layer in session.layers])
        reset(session)

    monkeypatch.setattr(CacheSession, "reset", counting)
    exact_tile(model, record, layer=1, rows=(12, 14), columns=(0, 14), progress=lambda *now: told.append(now))
    assert held == [[17, 17, 0, 0]]  # two of the record's chunks of 10, less 3 sinks
    assert told == [(10, 20), (20, 20)]


def test_a_stopped_replay_says_so_and_leaves_the_model_as_it_was(tiny):
    model = tiny()
    record = recorded(model, CASES[0][0])
    stop = threading.Event()
    with pytest.raises(KvvizError) as refusal:
        logit_map(model, record, layer=0, stop=stop, progress=lambda done, total: stop.set())
    assert refusal.value.code == "replay_stopped"
    assert refusal.value.values == {"tokens": 10}
    again = recorded(model, CASES[0][0])
    assert again.token_ids == record.token_ids
    assert np.array_equal(again.attention, record.attention)


def test_a_run_that_was_stopped_while_reading_can_be_looked_at(tiny):
    model, stop, record = tiny(), threading.Event(), RunRecord()
    for event in run(model, RunConfig(PROMPT, CASES[0][0], "", False, 3, chunk_size=10), stop=stop):
        record.apply(event)
        if record.prefill_tokens == 20:
            stop.set()
    assert (record.status, record.rows) == ("stopped", 20)
    tile = exact_tile(model, record, layer=0, rows=(10, 256), columns=(0, 256))
    assert tile.probability.shape == (4, 10, 20)
    assert np.abs(tile.probability.sum(-1) - 1).max() < 1e-6


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("replay_layer", {"layer": 2}),
        ("replay_layer", {"layer": -1}),
        ("replay_outside", {"rows": (N_ROWS, N_ROWS + 1)}),
        ("replay_outside", {"rows": (5, 5)}),
        ("replay_outside", {"columns": (-1, 5)}),
    ],
)
def test_what_cannot_be_looked_at_is_refused(tiny, code, change):
    model = tiny()
    asked = {"layer": 0, "rows": (0, 5), "columns": (0, 5), **change}
    with pytest.raises(ConfigError) as refusal:
        exact_tile(model, recorded(model, CASES[0][0]), **asked)
    assert refusal.value.code == code


def test_tiles_are_small(tiny):
    model = tiny()
    record = recorded(model, CASES[0][0], "long " * 60, 100, 1)
    tile = exact_tile(model, record, layer=0, rows=(0, 256), columns=(44, 300))
    assert tile.probability.shape == (4, 256, 256)
    with pytest.raises(ConfigError) as refusal:
        exact_tile(model, record, layer=0, rows=(0, 257), columns=(0, 5))
    assert refusal.value.code == "replay_size"


def test_other_weights_and_empty_records_are_refused(tiny):
    model = tiny()
    record = recorded(model, CASES[0][0], "abc", new=1)
    record.model = dataclasses.replace(record.model, weights_hash="another")
    for made, code in ((record, "replay_weights"), (RunRecord(), "replay_empty")):
        with pytest.raises(KvvizError) as refusal:
            logit_map(model, made, layer=0)
        assert refusal.value.code == code
