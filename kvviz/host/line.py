"""Whose turn is it? A bounded waiting line in front of the model, with places and a guess of the time.

Knows tickets and clocks; does not know what is done in a turn. First come, first served.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

from kvviz.errors import KvvizError

_LOOK_SECONDS = 0.1  # how often a waiting ticket looks at its switch
_REMEMBERED = 20  # turns that a guess is made of


@dataclass(frozen=True, slots=True)
class Place:
    """``ahead`` wait before this one (0: next); ``waiting`` in all. ``seconds``: a guess, or None."""

    ahead: int
    waiting: int
    seconds: float | None


@dataclass(eq=False, slots=True)
class Ticket:
    """One that waits or is being served. ``stop`` is the switch of what it is for, and its name here."""

    kind: str
    stop: threading.Event
    joined_at: float
    called: threading.Event = field(default_factory=threading.Event)
    began_at: float | None = None

    @property
    def waited_seconds(self) -> float:
        """Until it was its turn."""
        return 0.0 if self.began_at is None else self.began_at - self.joined_at


class Line:
    """``max_running`` turns at once, ``max_waiting`` tickets behind them. Belongs to one application."""

    def __init__(
        self, max_running: int, max_waiting: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_running, self.max_waiting = max_running, max_waiting
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._running: list[Ticket] = []
        self._took: dict[str, deque[float]] = {}

    def join(self, kind: str, stop: threading.Event) -> Ticket:
        """Stand in line. Every ticket must be given to :meth:`leave` in the end.

        Raises:
            KvvizError: the line is full.
        """
        with self._lock:
            self._call()
            full = len(self._running) >= self.max_running
            if full and len(self._waiting) >= self.max_waiting:
                raise KvvizError("host_full", running=len(self._running), waiting=len(self._waiting))
            ticket = Ticket(kind, stop, self._clock())
            self._waiting.append(ticket)
            self._call()
            return ticket

    def wait(self, ticket: Ticket) -> bool:
        """Wait for the turn; False when the ticket's switch was thrown before it came."""
        while not ticket.called.wait(_LOOK_SECONDS):
            if ticket.stop.is_set():
                return False
        return not ticket.stop.is_set()

    def leave(self, ticket: Ticket) -> None:
        """The turn is over, or was not waited for; leaving twice changes nothing."""
        with self._lock:
            if ticket in self._running:
                self._running.remove(ticket)
                assert ticket.began_at is not None
                took = self._took.setdefault(ticket.kind, deque(maxlen=_REMEMBERED))
                took.append(self._clock() - ticket.began_at)
            elif ticket in self._waiting:
                self._waiting.remove(ticket)
            self._call()

    def place(self, stop: threading.Event) -> Place | None:
        """Where the ticket with this switch stands; None when it does not wait."""
        with self._lock:
            self._call()
            for ahead, ticket in enumerate(self._waiting):
                if ticket.stop is stop:
                    return Place(ahead, len(self._waiting), self._guess(ahead))
            return None

    @property
    def counts(self) -> tuple[int, int]:
        """How many run, how many wait."""
        with self._lock:
            return len(self._running), len(self._waiting)

    def _call(self) -> None:
        while self._waiting and len(self._running) < self.max_running:
            ticket = self._waiting.popleft()
            ticket.began_at = self._clock()
            self._running.append(ticket)
            ticket.called.set()

    def _guess(self, ahead: int) -> float | None:
        """What is left of those that run, and all of those ahead, shared by the turns at once."""
        if not self._took:
            return None
        now = self._clock()
        left = sum(
            max(0.0, self._usual(ticket.kind) - (now - (ticket.began_at or now))) for ticket in self._running
        )
        before = sum(self._usual(ticket.kind) for ticket in list(self._waiting)[:ahead])
        return (left + before) / self.max_running

    def _usual(self, kind: str) -> float:
        took = self._took.get(kind) or [seconds for all_of in self._took.values() for seconds in all_of]
        return fmean(took)
