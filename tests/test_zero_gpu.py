"""The lent GPU without one: what crosses to another process can be pickled, and the answers are the engine's.

The library ``spaces`` is played by a stand-in that pickles everything which the real one would.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import kvviz.zero_gpu
from kvviz import engine, lab
from kvviz.config import RunConfig
from kvviz.errors import ConfigError
from kvviz.events import RunFinished, TokenGenerated
from kvviz.presets import preset
from kvviz.record import RunRecord


class Lender:
    """Stands in for ``spaces``: everything crosses by pickle, and CUDA is only asked for inside a call."""

    def __init__(self) -> None:
        self.decorated: list[Any] = []
        self.seconds: list[int] = []
        self.inside = False

    def GPU(self, *, duration: Callable[..., int]) -> Callable[..., Any]:
        def decorate(function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
            self.decorated.append(function)

            def call(*given: Any) -> Iterator[Any]:
                self.seconds.append(duration(*given))
                results = function(*pickle.loads(pickle.dumps(given)))
                try:
                    while True:
                        self.inside = True
                        try:
                            result = next(results)
                        except StopIteration:
                            return
                        finally:
                            self.inside = False
                        yield pickle.loads(pickle.dumps(result))
                finally:
                    results.close()

            return call

        return decorate


@pytest.fixture
def lender(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lender]:
    lender = Lender()
    module = ModuleType("spaces")
    module.GPU = lender.GPU  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spaces", module)
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")

    def asked() -> bool:
        assert lender.inside, "CUDA was asked for outside the decorated function"
        return False

    monkeypatch.setattr(torch.cuda, "is_available", asked)
    importlib.reload(kvviz.zero_gpu)
    yield lender
    monkeypatch.undo()
    importlib.reload(kvviz.zero_gpu)


CONFIGS = [RunConfig("hello there", preset(name), max_new_tokens=5) for name in ("full", "kivi-4")]


def vars_of(tile: Any) -> list[Any]:
    return [getattr(tile, field.name) for field in fields(tile)]


def tokens_of(events: Any) -> list[tuple[int, int]]:
    return [(e.run, e.token_id) for e in events if isinstance(e, TokenGenerated)]


def test_without_the_library_nothing_stands_between() -> None:
    work = kvviz.zero_gpu.workshop()
    assert work.compare is engine.compare
    assert work.perform is lab.perform


def test_one_function_is_decorated_when_the_module_is_imported(lender: Lender) -> None:
    assert len(lender.decorated) == 1


def test_runs_are_the_engine_s_and_ask_for_time_by_their_tokens(lender: Lender) -> None:
    work = kvviz.zero_gpu.workshop()
    model = work.store.get("tiny-random-llama")
    assert tokens_of(work.compare(model, CONFIGS)) == tokens_of(engine.compare(model, CONFIGS)) != []
    long = [replace(CONFIGS[0], max_new_tokens=400)]
    events = work.compare(model, long)
    next(events)
    events.close()
    assert lender.seconds[0] < lender.seconds[1] <= 120


def test_stop_reaches_the_other_side_within_two_tokens(lender: Lender) -> None:
    work = kvviz.zero_gpu.workshop()
    model, stop = work.store.get("tiny-random-llama"), threading.Event()
    after = []
    for event in work.compare(model, [replace(CONFIGS[0], max_new_tokens=100)], stop=stop):
        if isinstance(event, TokenGenerated):
            after.append(stop.is_set())
            if event.step == 3:
                stop.set()
        last = event
    assert isinstance(last, RunFinished)
    assert last.reason == "stopped"
    assert sum(after) <= 2


def test_a_refusal_comes_back_as_what_it_is(lender: Lender) -> None:
    work = kvviz.zero_gpu.workshop()
    model = work.store.get("tiny-random-llama")
    with pytest.raises(ConfigError, match="context"):
        list(work.compare(model, [replace(CONFIGS[0], max_new_tokens=10**6)]))


def test_scores_experiments_and_recomputations_cross_too(lender: Lender) -> None:
    work = kvviz.zero_gpu.workshop()
    model = work.store.get("tiny-random-llama")
    ids = list(range(5, 105))
    got, expected = (f(model, ids, preset("kivi-4"), skip=20).to_dict() for f in (work.score, engine.score))
    assert got["kl"] == expected["kl"]
    given = {"kinds": ["random"], "tokens": 16, "texts": 1}
    results = [list(perform(model, "sink", given))[-1] for perform in (work.perform, lab.perform)]
    assert results[0].tables == results[1].tables
    record = RunRecord(config=CONFIGS[0].to_dict())
    for event in engine.run(model, CONFIGS[0]):
        record.apply(event)
    maps = [logit_map(model, record, layer=1) for logit_map in (work.logit_map, engine.logit_map)]
    np.testing.assert_array_equal(maps[0].values, maps[1].values)
    window = {"layer": 1, "rows": (2, 9), "columns": (0, 9)}
    tiles = [tile(model, record, **window) for tile in (work.exact_tile, engine.exact_tile)]
    for one, other in zip(vars_of(tiles[0]), vars_of(tiles[1]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_nothing_is_left_on_the_disk(lender: Lender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    work = kvviz.zero_gpu.workshop()
    model = work.store.get("tiny-random-llama")
    events = work.compare(model, CONFIGS)
    next(events)
    assert list(tmp_path.iterdir())
    events.close()
    assert not list(tmp_path.iterdir())
