"""One way in for everything that uses a model: limits, a turn, memory and time, then the thing itself.

``HostedCompare``, ``HostedLab`` and ``HostedRecompute`` have the signatures of what they guard, so that
whoever is handed one need not know. Anything else asks :meth:`Hosting.hold`. Knows no engine and no page.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, cast

from kvviz.config import CacheConfig, RunConfig
from kvviz.errors import KvvizError
from kvviz.events import Event, ModelFacts, RunFinished
from kvviz.experiment import ExperimentInfo, LabProgress, LabResult
from kvviz.host.limits import Limits
from kvviz.host.line import Line, Ticket
from kvviz.host.memory import Memory, MemoryGuard, Need, cache_need, logits_need, run_need
from kvviz.record import RunRecord

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


class Held:
    """A turn that has begun. ``check`` before every piece of work."""

    def __init__(self, ticket: Ticket, most_seconds: int | None) -> None:
        self.ticket = ticket
        self.outcome = "done"
        self._most_seconds = most_seconds
        self._end = None if most_seconds is None else time.monotonic() + most_seconds

    @property
    def is_late(self) -> bool:
        """True once the time is up; the switch is thrown then."""
        if self._end is None or time.monotonic() < self._end:
            return False
        self.ticket.stop.set()
        return True

    def check(self) -> None:
        """Raises:
        KvvizError: the time is up.
        """
        if self.is_late:
            self.outcome = "late"
            raise KvvizError("host_seconds", most=self._most_seconds)


class Hosting:
    """Limits, waiting line and memory of one application."""

    def __init__(self, limits: Limits | None = None, memory: Memory | None = None) -> None:
        self.limits = limits or Limits()
        self.line = Line(self.limits.max_running, self.limits.max_waiting)
        self.guard = MemoryGuard(memory or Memory(), self.limits.keep_free_bytes)

    @contextlib.contextmanager
    def hold(
        self,
        kind: str,
        facts: ModelFacts,
        needs: Sequence[Need] = (),
        *,
        stop: threading.Event,
        most_seconds: int | None = None,
    ) -> Iterator[Held | None]:
        """Wait for a turn, take the memory, and give both back in the end. None: ``stop`` was thrown while
        waiting. ``most_seconds`` counts from the beginning of the turn; ``kind`` names it in logs, guesses.

        Raises:
            KvvizError: the line is full, or the memory is not there.
        """
        need = self.guard.check(facts, needs)
        ticket = self.line.join(kind, stop)
        held: Held | None = None
        try:
            if not self.line.wait(ticket):
                yield None
                return
            with self.guard.promised(facts, need):
                held = Held(ticket, most_seconds)
                _tell("begun", ticket, need_bytes=need.total_bytes)
                yield held
        except KvvizError as error:
            if held is not None and held.outcome == "done":
                held.outcome = error.code
            raise
        except Exception as error:
            if held is not None:
                held.outcome = type(error).__name__
            raise
        finally:
            self.line.leave(ticket)
            if held is not None:
                _tell("ended", ticket, outcome=held.outcome)


def _tell(what: str, ticket: Ticket, **values: object) -> None:
    took = 0.0 if ticket.began_at is None else time.monotonic() - ticket.began_at
    data = {
        "kind": ticket.kind,
        "waited_s": round(ticket.waited_seconds, 3),
        "took_s": round(took, 3),
        **values,
    }
    logger.info("turn %s", what, extra={"data": data})


class HostedCompare:
    """The engine's comparison (of one run or of several), guarded."""

    def __init__(self, hosting: Hosting, compare: Callable[..., Iterator[Event]]) -> None:
        self._hosting, self._compare = hosting, compare

    def __call__(
        self, model: Any, configs: Sequence[RunConfig], *, stop: threading.Event | None = None, **others: Any
    ) -> Iterator[Event]:
        """The events of the comparison, once it is its turn.

        Raises:
            KvvizError: refused by the engine or by a limit, before the first event; or with the first event,
                when the line is full or the memory is not there; or after the last, when the time was up.
        """
        stop = stop or threading.Event()
        hosting = self._hosting
        hosting.limits.check_request(configs)
        needs = []
        for config in configs:
            prompt_tokens = len(model.encode(config.prompt, config.use_chat_template))
            hosting.limits.check_tokens(prompt_tokens, config.max_new_tokens)
            needs.append(run_need(model.facts, config.cache, prompt_tokens, config.max_new_tokens))
        events = self._compare(model, configs, stop=stop, **others)
        return self._in_turn(model.facts, events, needs, stop)

    def _in_turn(
        self, facts: ModelFacts, events: Iterator[Event], needs: Sequence[Need], stop: threading.Event
    ) -> Iterator[Event]:
        seconds = self._hosting.limits.max_run_seconds
        with (
            closing(cast(Any, events)),
            self._hosting.hold("run", facts, needs, stop=stop, most_seconds=seconds) as held,
        ):
            if held is None:
                return
            late = False
            for event in events:
                yield event
                if isinstance(event, RunFinished):
                    held.outcome = event.reason
                late = late or held.is_late
            if late:
                held.check()


class HostedLab:
    """The laboratory, guarded. It holds two caches at full precision at most, each of the longest text."""

    def __init__(self, hosting: Hosting, lab: Any) -> None:
        self._hosting, self._lab = hosting, lab

    def experiments(self) -> list[ExperimentInfo]:
        """What can be asked."""
        found: list[ExperimentInfo] = self._lab.experiments()
        return found

    def perform(
        self, model: Any, name: str, given: Mapping[str, Any], *, stop: threading.Event | None = None
    ) -> Iterator[LabProgress | LabResult]:
        """Progress and the result, once it is its turn.

        Raises:
            KvvizError: as :class:`HostedCompare`.
        """
        stop = stop or threading.Event()
        work = self._lab.perform(model, name, given, stop=stop)
        info = next(info for info in self.experiments() if info.name == name)
        tokens = info.held_tokens(info.settings(given))
        self._hosting.limits.check_count("context_tokens", tokens)
        full = cache_need(model.facts, CacheConfig(), tokens)
        return self._in_turn(model.facts, work, [full, full, logits_need(model.facts)], stop)

    def _in_turn(
        self, facts: ModelFacts, work: Iterator[Any], needs: Sequence[Need], stop: threading.Event
    ) -> Iterator[LabProgress | LabResult]:
        limits = self._hosting.limits
        with (
            closing(cast(Any, work)),
            self._hosting.hold("lab", facts, needs, stop=stop, most_seconds=limits.max_lab_seconds) as held,
        ):
            if held is None:
                raise KvvizError("lab_stopped")
            for event in work:
                if isinstance(event, LabProgress):
                    limits.check_count("lab_tokens", event.total)
                yield event
                if isinstance(event, LabProgress):
                    held.check()


class HostedRecompute:
    """The engine's recomputations, guarded."""

    def __init__(self, hosting: Hosting, engine: Any) -> None:
        self._hosting, self._engine = hosting, engine

    def exact_tile(
        self, model: Any, record: RunRecord, *, layer: int, rows: tuple[int, int], columns: tuple[int, int],
        stop: threading.Event | None = None, progress: Progress | None = None,
    ) -> Any:  # fmt: skip
        """As the engine's."""
        given = {"layer": layer, "rows": rows, "columns": columns}
        return self._hold(self._engine.exact_tile, model, record, given, stop, progress)

    def logit_map(
        self, model: Any, record: RunRecord, *, layer: int,
        stop: threading.Event | None = None, progress: Progress | None = None,
    ) -> Any:  # fmt: skip
        """As the engine's."""
        return self._hold(self._engine.logit_map, model, record, {"layer": layer}, stop, progress)

    def _hold(
        self, work: Callable[..., Any], model: Any, record: RunRecord, given: dict[str, Any],
        stop: threading.Event | None, progress: Progress | None,
    ) -> Any:  # fmt: skip
        stop = stop or threading.Event()
        cache = CacheConfig.from_dict(record.config["cache"])
        need = cache_need(model.facts, cache, len(record.token_ids))
        seconds = self._hosting.limits.max_run_seconds
        with self._hosting.hold("recompute", model.facts, [need], stop=stop, most_seconds=seconds) as held:
            if held is None:
                raise KvvizError("replay_stopped", tokens=0)

            def told(done: int, total: int) -> None:
                held.check()
                if progress is not None:
                    progress(done, total)

            return work(model, record, **given, stop=stop, progress=told)
