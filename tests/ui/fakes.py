"""Stand-ins for the page: an engine that tells made-up events, and a store of one model."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kvviz.config import RunConfig
from kvviz.errors import KvvizError
from kvviz.events import Event, RunFinished, RunStarted, TokenGenerated
from tests.builders import make_events, make_facts


class FakeStore:
    """Knows one model, or fails with ``error``. ``gate`` holds a load back until it is set."""

    def __init__(self, error: Exception | None = None, gate: threading.Event | None = None) -> None:
        self.error, self.gate = error, gate
        self.asked: list[str] = []

    def get(self, name: str, progress: Any = None) -> Any:
        self.asked.append(name)
        if progress is not None:
            progress("halfway there", 0.5)
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        return SimpleNamespace(facts=make_facts())


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
