"""The middle's share: the full matrix summed by part, exact progress, refusals, exports."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import torch

from kvviz.engine import Corpus
from kvviz.errors import ConfigError, KvvizError
from kvviz.lab import bench as bench_module
from kvviz.lab import perform
from kvviz.lab.bench import Bench
from tests.oracles.model_oracle import Rule, read_whole

CORPUS = Corpus("words", " ".join(f"word {n} of a small corpus" for n in range(40)), "5" * 64)
SETTINGS = {"sinks": 3, "window": 10, "tokens": 60}


def expected_shares(weights, sinks: int, window: int):
    """``weights (L, H, T, T)`` -> ``(3, L, H, R)``: sinks, middle, window of each row that has a middle."""
    rows = range(sinks + window, weights.shape[-1])
    shares = [
        [
            weights[:, :, row, :sinks].sum(-1),
            weights[:, :, row, sinks : row - window + 1].sum(-1),
            weights[:, :, row, row - window + 1 : row + 1].sum(-1),
        ]
        for row in rows
    ]
    return np.moveaxis(np.asarray(shares), 0, -1)


@pytest.fixture(scope="module")
def done(tiny):
    *progress, result = perform(tiny(), "middle", SETTINGS, corpus=CORPUS)
    return progress, result


@pytest.mark.parametrize("chunk", [7, 256])
@pytest.mark.parametrize("sinks", [0, 3])
def test_shares_are_the_oracle_s(tiny, monkeypatch, sinks, chunk):
    model = tiny()
    read = Bench.read
    monkeypatch.setattr(Bench, "read", lambda *a, **k: read(*a, **k | {"chunk_size": chunk}))
    *_, result = perform(model, "middle", SETTINGS | {"sinks": sinks}, corpus=CORPUS)
    _, oracle = read_whole(model.network, Bench(model, CORPUS).text(0, 60), Rule(), keep_weights=True)
    shares = expected_shares(torch.stack(oracle.weights).numpy(), sinks, 10)
    assert shares.shape[-1] == 60 - 10 - sinks
    assert np.abs(result.arrays["mass"] - shares.mean(-1)).max() < 1e-9
    assert np.abs(result.arrays["by_row"] - shares.mean((1, 2))).max() < 1e-9
    assert np.abs(result.arrays["mass"].sum(0) - 1).max() < 1e-9


def test_tables_and_finding_tell_the_same_numbers(done):
    _, result = done
    middle = result.arrays["mass"][1]
    parts = {row[0]: row for row in result.tables["parts"].rows}
    assert parts["middle"][1] == pytest.approx(middle.mean())
    assert parts["middle"][2] == pytest.approx(np.mean([(seen - 13) / seen for seen in range(14, 61)]))
    assert parts["sink"][2] + parts["middle"][2] + parts["window"][2] == pytest.approx(1)
    assert parts["middle"][3] == middle.max()
    assert parts["middle"][4:] == ((middle > 0.1).mean(), (middle > 0.3).mean())
    assert result.tables["part_heads"].column("middle_mean") == middle.flatten().tolist()
    assert result.tables["part_layers"].column("middle_mean") == pytest.approx(middle.mean(1).tolist())
    layer, head = np.unravel_index(middle.argmax(), middle.shape)
    assert f"most of all: layer {layer}, head {head} ({100 * middle.max():.1f} %)" in result.finding
    assert f"the middle gets {100 * middle.mean():.1f} %" in result.finding


def test_progress_is_exact(done):
    progress, _ = done
    assert [(event.done, event.total) for event in progress] == [(0, 60), (60, 60)]


def test_export(done):
    _, result = done
    plain = json.loads(result.to_json())
    assert [row["part"] for row in plain["tables"]["parts"]] == ["sink", "middle", "window"]
    assert result.to_csv()["middle-part_heads.csv"].count("\n") == 1 + 2 * 4
    assert all(np.isfinite(values).all() for values in result.arrays.values())


def test_one_row_with_a_middle_is_enough_and_none_is_refused(tiny):
    *_, result = perform(tiny(), "middle", SETTINGS | {"tokens": 16, "window": 12}, corpus=CORPUS)
    assert result.arrays["by_row"].shape == (3, 1)
    with pytest.raises(ConfigError) as refused:
        perform(tiny(), "middle", SETTINGS | {"tokens": 16, "window": 13}, corpus=CORPUS)
    assert refused.value.code == "lab_no_middle"


def test_stop_ends_it_between_chunks(tiny):
    stop = threading.Event()
    settings = SETTINGS | {"tokens": bench_module.CHUNK_SIZE + 1}
    work = perform(tiny(), "middle", settings, stop=stop, corpus=CORPUS)
    next(work)
    assert next(work).done == bench_module.CHUNK_SIZE
    stop.set()
    with pytest.raises(KvvizError) as stopped:
        next(work)
    assert stopped.value.code == "lab_stopped"


@pytest.mark.real
@pytest.mark.timeout(900)
def test_the_real_model_agrees_with_the_full_matrix(default_model):
    settings = {"sinks": 4, "window": 64, "tokens": 300}
    *_, result = perform(default_model, "middle", settings)
    ids = Bench(default_model).text(0, 300)
    _, oracle = read_whole(default_model.network, ids, Rule(), keep_weights=True)
    shares = expected_shares(torch.stack(oracle.weights).numpy(), 4, 64)
    assert np.abs(result.arrays["mass"] - shares.mean(-1)).max() < 1e-4
    sink, middle, window = result.arrays["mass"].mean((1, 2))
    assert sink + middle + window == pytest.approx(1, abs=1e-5)
    assert sink > 0.2  # an even spread over the 69 to 300 tokens seen would give them 0.06 at most
