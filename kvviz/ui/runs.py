"""Runs that a page shows: their records, their stop switch, and what is being looked at.

Knows events and records; does not know an engine, gradio or a figure. A session holds only a run's id.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from kvviz.config import RunConfig
from kvviz.events import Event
from kvviz.record import RunRecord

Phase = Literal["waiting", "loading", "running", "done"]

MAX_RUNS = 12


@dataclass(frozen=True, slots=True)
class ViewChoice:
    """What the person looks at. ``step`` None follows the latest."""

    shown: int = 0
    group: Literal["sink", "window", "middle"] = "sink"
    step: int | None = None
    layer: int = 0
    head: int = 0
    scale: Literal["linear", "log"] = "log"
    measure: Literal["relative", "snr_db"] = "relative"


class LiveRun:
    """One press of Run: a record for each configuration, written by one thread and read by others."""

    def __init__(
        self, session: str, model: str, configs: Sequence[RunConfig], choice: ViewChoice | None = None
    ) -> None:
        self.id = uuid.uuid4().hex
        self.session, self.model, self.configs = session, model, tuple(configs)
        self.choice = choice or ViewChoice()
        self.stop = threading.Event()
        self.superseded = False
        self.phase: Phase = "waiting"
        self.error = ""
        self.remarks = ""
        self.created = ""  # when the engine told its first event: UTC, ISO 8601
        self.is_stored = False  # read from a file: nothing in it was measured now
        self._claimed = False
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._records = [RunRecord(config=config.to_dict()) for config in self.configs]

    def claim(self) -> bool:
        """True for the one caller that may carry this run."""
        with self._lock:
            first, self._claimed = not self._claimed, True
            return first

    def apply(self, event: Event) -> None:
        """Fold one engine event in."""
        with self._lock:
            self.created = self.created or datetime.now(UTC).isoformat(timespec="seconds")
            self._records[event.run].apply(event)

    def snapshot(self) -> list[RunRecord]:
        """The records as they are now; their lists no longer grow under the reader."""
        with self._lock:
            return [_frozen(record) for record in self._records]

    @property
    def has_started(self) -> bool:
        """True when the engine has accepted the request."""
        return any(record.status != "empty" for record in self._records)

    @property
    def is_done(self) -> bool:
        """True when nothing will change any more."""
        return self._done.is_set()

    def steps(self, chosen: int | None) -> tuple[int, int]:
        """The last step that can be looked at (every one that may come, in the end those that came), and the
        one that is looked at: ``chosen``, None being the last."""
        came = max(len(record.generated_ids) for record in self._records)
        last = max(1, (came if self.is_done else self.configs[0].max_new_tokens) - 1)
        return last, last if chosen is None else min(chosen, last)

    def finish(self) -> None:
        """No more events will come."""
        self.phase = "done"
        self._done.set()

    def wait(self, timeout: float) -> bool:
        """Wait until done; False when the time ran out."""
        return self._done.wait(timeout)

    def abandon(self) -> None:
        """Stop, and show nothing more of this run."""
        self.superseded = True
        self.stop.set()


def _frozen(record: RunRecord) -> RunRecord:
    return replace(
        record,
        generated_ids=list(record.generated_ids),
        labels=list(record.labels),
        logprobs=list(record.logprobs),
        step_ms=list(record.step_ms),
        spans=list(record.spans),
        memory=list(record.memory),
        tier_mass=list(record.tier_mass),
        received=list(record.received),
        head_summary=list(record.head_summary),
        timelines=list(record.timelines),
    )


class RunStore:
    """The newest runs of every session, the least recently used dropped first. Belongs to one application."""

    def __init__(self, max_runs: int = MAX_RUNS) -> None:
        self._max_runs = max_runs
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, LiveRun] = OrderedDict()

    def add(self, run: LiveRun) -> None:
        """Lay a run ready; the session's earlier runs are abandoned, and kept until it settles."""
        with self._lock:
            for old in self._runs.values():
                if old.session == run.session:
                    old.abandon()
            self._runs[run.id] = run
            while len(self._runs) > self._max_runs:
                finished = next((key for key, old in self._runs.items() if old.is_done), None)
                if finished is None:
                    break
                del self._runs[finished]

    def settle(self, run: LiveRun) -> None:
        """The run has begun: it takes the place of the session's earlier ones."""
        with self._lock:
            self._drop(lambda old: old.session == run.session and old is not run)

    def get(self, run_id: str, session: str) -> LiveRun | None:
        """A run by id, for the session that started it and for no other."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or run.session != session:
                return None
            self._runs.move_to_end(run_id)
            return run

    def newest(self, session: str) -> LiveRun | None:
        """The run that the session laid ready or opened last."""
        with self._lock:
            runs = [run for run in self._runs.values() if run.session == session and not run.superseded]
        return runs[-1] if runs else None

    def stop(self, session: str) -> None:
        """Ask the session's runs to stop; they stay to be looked at."""
        with self._lock:
            for run in self._runs.values():
                if run.session == session:
                    run.stop.set()

    def forget(self, session: str) -> None:
        """The session is gone: stop its runs and drop them."""
        with self._lock:
            self._drop(lambda run: run.session == session)

    def _drop(self, matches: Callable[[LiveRun], bool]) -> None:
        for key in [key for key, run in self._runs.items() if matches(run)]:
            self._runs.pop(key).abandon()

    def __len__(self) -> int:
        return len(self._runs)
