"""One way in for everything that uses a model: limits, a turn, memory and time.

Knows no engine and no page.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar, cast

from kvviz.errors import KvvizError
from kvviz.events import ModelFacts
from kvviz.host.limits import Limits
from kvviz.host.line import Line, Ticket
from kvviz.host.memory import Memory, MemoryGuard, Need

logger = logging.getLogger(__name__)

T = TypeVar("T")


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
                _tell("turn begun", ticket, need_bytes=need.total_bytes)
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
                _tell("turn ended", ticket, outcome=held.outcome)

    def in_turn(
        self,
        kind: str,
        facts: ModelFacts,
        events: Iterator[T],
        needs: Sequence[Need],
        *,
        stop: threading.Event,
        most_seconds: int | None,
    ) -> Iterator[T]:
        """``events`` once it is their turn; none when ``stop`` is thrown before. When the time is up the
        switch is thrown, what comes until ``events`` end is passed on, and then it is told.

        Raises:
            KvvizError: as :meth:`hold`; in the end, that the time was up.
        """
        with (
            closing(cast(Any, events)),
            self.hold(kind, facts, needs, stop=stop, most_seconds=most_seconds) as held,
        ):
            if held is None:
                return
            late = False
            for event in events:
                yield event
                held.outcome = str(getattr(event, "reason", held.outcome))
                late = late or held.is_late
            if late:
                held.check()


def _tell(what: str, ticket: Ticket, **values: object) -> None:
    took = 0.0 if ticket.began_at is None else time.monotonic() - ticket.began_at
    data = {
        "kind": ticket.kind,
        "waited_s": round(ticket.waited_seconds, 3),
        "took_s": round(took, 3),
        **values,
    }
    logger.info(what, extra={"data": data})
