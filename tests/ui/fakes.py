"""Stand-ins for the page: an engine that tells made-up events, and a store of one model."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from kvviz.comparison import Entry, ScoreProgress
from kvviz.comparison_request import ComparisonRequest
from kvviz.config import Middle, RunConfig
from kvviz.errors import KvvizError
from kvviz.events import Event, ExactTile, LogitMap, RunFinished, RunStarted, TokenGenerated
from kvviz.record import RunRecord, first_divergence
from tests.builders import make_events, make_facts
from tests.comparisons import make_comparison, make_generation


class FakeStore:
    """Knows one model, or fails with ``error``. ``gate`` holds a load back until it is set. The model has
    ``warnings`` about any cache that quantizes."""

    def __init__(
        self,
        error: Exception | None = None,
        gate: threading.Event | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.error, self.gate, self.warnings = error, gate, list(warnings)
        self.asked: list[str] = []

    def get(self, name: str, progress: Any = None) -> Any:
        self.asked.append(name)
        if progress is not None:
            progress("halfway there", 0.5)
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        return SimpleNamespace(
            facts=make_facts(),
            check=lambda cache: cache.check_model(n_layers=2, head_dim=16),
            warnings=lambda cache: self.warnings if cache.middle is Middle.QUANTIZE else [],
        )


class FakeRecompute:
    """Answers with numbers that say what was asked; ``gate`` holds the answer back until it is set."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.gate = gate
        self.asked: list[dict[str, Any]] = []

    def exact_tile(
        self, model: Any, record: RunRecord, *, layer: int, rows: tuple[int, int], columns: tuple[int, int],
        stop: threading.Event | None = None, progress: Any = None,
    ) -> ExactTile:  # fmt: skip
        self.asked.append({"layer": layer, "rows": rows, "columns": columns})
        self._wait(stop, progress)
        shape = (4, rows[1] - rows[0], columns[1] - columns[0])
        return ExactTile(
            layer, rows[0], columns[0], np.full(shape, 0.25, np.float32), np.ones(shape, np.float32)
        )

    def logit_map(
        self, model: Any, record: RunRecord, *, layer: int,
        stop: threading.Event | None = None, progress: Any = None,
    ) -> LogitMap:  # fmt: skip
        self.asked.append({"layer": layer, "run": record.label})
        self._wait(stop, progress)
        assert record.grid is not None
        cells = len(record.grid.edges) - 1
        values = np.where(np.tri(cells, dtype=bool), 3.0, -np.inf)
        return LogitMap(layer, np.broadcast_to(values, (4, cells, cells)).astype(np.float32))

    def _wait(self, stop: threading.Event | None, progress: Any) -> None:
        progress(1, 2)
        while self.gate is not None and not self.gate.wait(0.01):
            if stop is not None and stop.is_set():
                raise KvvizError("replay_stopped")


class FakeEngine:
    """Compares by telling made-up events in turns; counts what was told and whether it was closed."""

    def __init__(
        self, n_prompt: int = 8, *, pause_s: float = 0.0, refuse: KvvizError | None = None,
        explode_at: int | None = None,
    ) -> None:  # fmt: skip
        self.n_prompt, self.pause_s, self.refuse, self.explode_at = n_prompt, pause_s, refuse, explode_at
        self.told = 0
        self.tokens_after_stop = 0
        self.closed = 0
        self.asked: list[Sequence[RunConfig]] = []

    def __call__(
        self, model: Any, configs: Sequence[RunConfig], *, stop: threading.Event | None = None, **_: Any
    ) -> Iterator[Event]:
        if self.refuse is not None:
            raise self.refuse
        self.asked.append(configs)
        return self._tell(configs, stop or threading.Event())

    def _tell(self, configs: Sequence[RunConfig], stop: threading.Event) -> Iterator[Event]:
        turns = [_of_run(config, i, self.n_prompt) for i, config in enumerate(configs)]
        try:
            for step in range(max(len(turn) for turn in turns)):
                for index, turn in enumerate(turns):
                    if step >= len(turn):
                        continue
                    event = turn[step]
                    if stop.is_set() and isinstance(event, TokenGenerated):
                        yield RunFinished(index, "stopped", "", None, None)
                        turn.clear()
                        continue
                    if self.explode_at == self.told:
                        raise RuntimeError("made to fail")
                    self.told += 1
                    time.sleep(self.pause_s)
                    yield event
        finally:
            self.closed += 1


def _of_run(config: RunConfig, index: int, n_prompt: int) -> list[Event]:
    """Made-up events of one run under its own configuration."""
    events = make_events(n_prompt, config.max_new_tokens, cache=config.cache, label=config.label)
    tagged = [replace(event, run=index) for event in events]
    started = tagged[0]
    assert isinstance(started, RunStarted)
    tagged[0] = replace(started, config=config.to_dict())
    return list(tagged)


class FakeComparing(FakeEngine):
    """Compares by made-up events, then made-up progress, then a made-up result with the asked names."""

    def __call__(  # type: ignore[override]
        self, model: Any, request: ComparisonRequest, *, stop: threading.Event | None = None, **_: Any
    ) -> Iterator[Any]:
        if self.refuse is not None:
            raise self.refuse
        self.asked.append(request.runs)
        return self._all(request, stop or threading.Event())

    def _all(self, request: ComparisonRequest, stop: threading.Event) -> Iterator[Any]:
        records = [RunRecord() for _ in request.configurations]
        with closing(self._tell(request.runs, stop)) as events:
            for event in events:
                records[event.run].apply(event)
                yield event
        is_scored = request.text is not None and not stop.is_set()
        for done in (0, 5, 10) if is_scored else ():
            time.sleep(self.pause_s)
            yield ScoreProgress(done, 10)
        made = make_comparison(scored=is_scored, others=len(records) - 1)
        entries = [
            Entry(label, cache.to_dict(), make_generation(record, first_divergence(records[0], record)),
                  made.entries[i].score)
            for i, ((label, cache), record) in enumerate(zip(request.configurations, records, strict=True))
        ]  # fmt: skip
        yield replace(made, request=request.to_dict(), entries=tuple(entries))
