"""Experiments that a page runs: their progress, their result, their stop switch.

Knows the laboratory's contract; does not know an experiment, gradio or a figure. A session holds only ids.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, TypeAlias, cast

from kvviz.catalogue import text
from kvviz.errors import KvvizError
from kvviz.experiment import LabProgress, LabResult
from kvviz.ui.language import in_thread

logger = logging.getLogger(__name__)

MAX_RESULTS = 36

#: an experiment under way, once its model is there
Performed: TypeAlias = Iterator[LabProgress | LabResult]


class LabRun:
    """One press of an experiment's Run, carried by a thread of its own and read by others."""

    def __init__(self, session: str, experiment: str, model: str, settings: Mapping[str, Any]) -> None:
        self.id = uuid.uuid4().hex
        self.session, self.experiment, self.model, self.settings = session, experiment, model, dict(settings)
        self.stop = threading.Event()
        self.progress: LabProgress | None = None
        self.result: LabResult | None = None
        self.error = ""
        self._done = threading.Event()
        self._claim = threading.Lock()

    def start(self, perform: Callable[[], Performed]) -> bool:
        """Carry the experiment in a thread; False when somebody has started it before."""
        if not self._claim.acquire(blocking=False):
            return False
        in_thread(self._carry, perform, called=f"kvviz-lab-{self.id[:8]}")
        return True

    def wait(self, timeout: float) -> bool:
        """Wait until it has ended; False when the time ran out."""
        return self._done.wait(timeout)

    @property
    def is_done(self) -> bool:
        """True when nothing will change any more."""
        return self._done.is_set()

    def _carry(self, perform: Callable[[], Performed]) -> None:
        try:
            with closing(cast(Any, perform())) as events:
                for event in events:
                    if isinstance(event, LabResult):
                        self.result = event
                    else:
                        self.progress = event
        except KvvizError as error:
            self.error = str(error)
        except Exception:
            logger.exception("experiment %s failed", self.experiment)
            self.error = text("ui.error.unexpected")
        finally:
            self._done.set()


class LabRunStore:
    """The newest experiments of all sessions, the oldest finished ones dropped first."""

    def __init__(self, max_runs: int = MAX_RESULTS) -> None:
        self._max_runs = max_runs
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, LabRun] = OrderedDict()

    def add(self, run: LabRun) -> None:
        """Lay an experiment ready. The session's unfinished ones stop: one at a time for each person."""
        with self._lock:
            for old in self._runs.values():
                if old.session == run.session:
                    old.stop.set()
            self._runs[run.id] = run
            while len(self._runs) > self._max_runs:
                finished = next((key for key, old in self._runs.items() if old.is_done), None)
                if finished is None:
                    break
                del self._runs[finished]

    def get(self, run_id: str, session: str) -> LabRun | None:
        """An experiment by id, for the session that started it and for no other."""
        with self._lock:
            run = self._runs.get(run_id)
            return run if run is not None and run.session == session else None

    def stop(self, session: str) -> None:
        """Ask the session's experiments to stop."""
        with self._lock:
            for run in self._runs.values():
                if run.session == session:
                    run.stop.set()

    def forget(self, session: str) -> None:
        """The session is gone: stop its experiments and drop them."""
        with self._lock:
            for key in [key for key, run in self._runs.items() if run.session == session]:
                self._runs.pop(key).stop.set()

    def __len__(self) -> int:
        return len(self._runs)
