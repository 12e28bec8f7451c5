"""The atlas on the real model: maps and summaries against eager attention, and what watching costs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from kvviz.config import CacheConfig, Middle, RunConfig
from kvviz.engine import exact_tile, load_text, run
from kvviz.engine.capture import Capture
from kvviz.engine.grid import CellMap
from kvviz.events import MASS_TIERS, Tier
from kvviz.record import RunRecord
from tests.oracles.model_oracle import Rule, read_whole

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]  # seconds; a busy machine is no failure

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 512
NEW = 4
SINKS, WINDOW = 4, 64


@pytest.fixture(scope="module")
def prompt(default_model) -> str:
    """512 tokens of the corpus as text, or one or two more or fewer when cut and read again."""
    ids = default_model.encode(load_text("pydoc-topics").text[:20_000], False)
    return default_model.decode(ids[:TOKENS])


@pytest.fixture(scope="module")
def record(default_model, prompt) -> RunRecord:
    made = RunRecord()
    cache = CacheConfig(SINKS, WINDOW, Middle.KEEP)
    for event in run(default_model, RunConfig(prompt, cache, "", False, NEW, chunk_size=200)):
        made.apply(event)
    assert made.status == "length"
    return made


@pytest.fixture(scope="module")
def eager(default_model, record) -> np.ndarray:
    """``(L, H, rows, rows)``: probabilities of plain masked attention over the whole text."""
    _, oracle = read_whole(
        default_model.network, record.token_ids[: record.rows], Rule(SINKS, WINDOW), keep_weights=True
    )
    return torch.stack(oracle.weights).numpy()


def test_the_reduced_map_is_the_maximum_of_the_full_one(record, eager):
    edges = record.grid.edges
    assert record.grid.tokens_per_cell == 2
    assert len(record.prompt_ids) == pytest.approx(TOKENS, abs=4)
    whole = np.zeros((*eager.shape[:2], edges[-1], edges[-1]), dtype=np.float32)
    whole[..., : record.rows, : record.rows] = eager
    expected = np.maximum.reduceat(np.maximum.reduceat(whole, edges[:-1], axis=2), edges[:-1], axis=3)
    assert np.abs(record.attention - expected).max() <= 1e-3  # a step of float16, and rounding of fp32
    newest = 32 + NEW
    assert (np.diff(edges)[-newest:] == 1).all()
    rows = slice(-newest, -1)  # the newest token has no row
    assert np.abs(record.attention[..., rows, -newest:] - whole[..., rows, -newest:]).max() <= 1e-3
    assert np.abs(record.attention[..., rows, :SINKS] - whole[..., rows, :SINKS]).max() <= 1e-3


def test_head_summaries_agree_with_eager_attention(record, eager):
    summary = record.head_summary[-1]
    assert summary.rows == record.rows
    back = np.arange(record.rows)[:, None] - np.arange(record.rows)
    np.testing.assert_allclose(summary.first_mass, eager[..., 0].mean(-1), atol=1e-4)
    assert summary.first_mass[1:].mean() > 0.3  # this model has a sink
    sink = summary.tier_mass[..., MASS_TIERS.index(Tier.SINK)]
    np.testing.assert_allclose(sink, eager[..., :SINKS].sum(-1).mean(-1), atol=1e-4)
    assert np.abs(summary.tier_mass.sum(-1) - 1).max() < 1e-5
    for layer in (0, 15, 29):
        share = eager[layer].astype(np.float64)
        entropy = -(share * np.log(np.where(share > 0, share, 1))).sum(-1).mean(-1)
        np.testing.assert_allclose(summary.entropy[layer], entropy, atol=2e-3)
        np.testing.assert_allclose(
            summary.distance[layer], (share * back).sum(-1).mean(-1), rtol=1e-3, atol=0.02
        )


def test_an_exact_tile_is_the_eager_one(default_model, record, eager):
    tile = exact_tile(default_model, record, layer=12, rows=(260, 516), columns=(0, 256))
    assert np.abs(tile.probability - eager[12, :, 260:516, :256]).max() <= 1e-4
    newest = exact_tile(default_model, record, layer=12, rows=(200, 256), columns=(0, 256))
    assert np.abs(newest.probability.sum(-1) - 1).max() <= 1e-5
    future = np.arange(256) > np.arange(200, 256)[:, None]
    assert (newest.probability[:, future] == 0).all()
    assert np.isneginf(newest.logits[:, future]).all()
    assert np.isfinite(newest.logits[:, ~future]).all()


def read(model, ids: list[int], capture: Capture | None) -> tuple[torch.Tensor, float]:
    """The last row's logits and the seconds that reading took."""
    session = model.new_session(CacheConfig(SINKS, WINDOW, Middle.KEEP))
    session.observer = capture
    begin = time.perf_counter()
    for start in range(0, len(ids), 256):
        logits = model.forward(ids[start : start + 256], session, last_only=True)
        if capture is not None:
            assert capture.rows(0) is not None
    return logits, time.perf_counter() - begin


def test_watching_every_head_costs_little_time_and_changes_no_bit(default_model):
    """In turns on the same text; the fastest of each, because a busy machine only ever adds."""
    ids = default_model.encode(load_text("pydoc-topics").text[:20_000], False)[:1024]
    facts, cells = default_model.facts, CellMap.of(len(ids) + 64, SINKS, 64)
    plain, watched = [], []
    for _ in range(2):
        capture = Capture(n_layers=facts.n_layers, n_heads=facts.n_heads, cells=cells, maps=True)
        plain.append(read(default_model, ids, None))
        watched.append(read(default_model, ids, capture))
    assert all(torch.equal(plain[0][0], logits) for logits, _ in watched)
    assert min(seconds for _, seconds in watched) <= 2.5 * min(seconds for _, seconds in plain)


PEAK = """
import json, resource, sys, torch
from kvviz.cache import CacheSession
from kvviz.config import CacheConfig
from kvviz.engine.capture import Capture
from kvviz.engine.grid import CellMap
torch.set_num_threads(1)
torch.set_grad_enabled(False)
layers, heads, tokens, chunk = 30, 9, 8192, 256
shape = {"n_layers": layers, "n_heads": heads, "n_kv_heads": 3, "head_dim": 64, "dtype": torch.float32}
session = CacheSession(CacheConfig(4, 128), **shape, device=torch.device("cpu"), rotary=None)
session.begin(tokens - chunk)
for layer in range(layers):
    session.append(layer, *torch.randn(2, 1, 3, tokens - chunk, 64))
session.finish()
cells = CellMap.of(tokens, 4, 1)
if sys.argv[1] == "watching":
    session.observer = Capture(n_layers=layers, n_heads=heads, cells=cells, maps=True)
session.begin(chunk)
for layer in range(layers):
    session.append(layer, *torch.randn(2, 1, 3, chunk, 64))
    session.attend(layer, torch.randn(1, heads, chunk, 64), 0.125)
session.finish()
rows = session.observer.rows(0).values.shape if session.observer else ()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([peak * (1 if sys.platform == "darwin" else 1024), rows, cells.cells]))
"""


def test_at_8192_tokens_watching_adds_less_than_a_gigabyte():
    """The default model's heads and layers, the last 256 rows of 8,192: the widest step of such a prompt. The
    map that a record keeps of them all is added to the peak."""
    peaks = {}
    for how in ("plain", "watching"):
        done = subprocess.run(
            [sys.executable, "-c", PEAK, how], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        peaks[how], rows, cells = json.loads(done.stdout)
    assert rows[:2] == [30, 9]
    assert 300 < rows[3] == cells <= 320
    kept_map = 30 * 9 * cells**2 * 2  # float16
    assert 0 < peaks["watching"] - peaks["plain"] + kept_map < 1e9
