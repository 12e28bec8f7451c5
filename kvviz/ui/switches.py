"""Stop switches of what a session has asked for outside the page. Knows sessions and switches only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Switches:
    """One for each call that is being answered. Belongs to one application."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, list[threading.Event]] = {}

    @contextmanager
    def held(self, session: str) -> Iterator[threading.Event]:
        """A switch that is thrown when ``session`` goes away while the block runs."""
        stop = threading.Event()
        with self._lock:
            self._held.setdefault(session, []).append(stop)
        try:
            yield stop
        finally:
            with self._lock:
                left = [other for other in self._held.get(session, []) if other is not stop]
                if left:
                    self._held[session] = left
                else:
                    self._held.pop(session, None)

    def forget(self, session: str) -> None:
        """The session is gone: stop all that it asked for."""
        with self._lock:
            for stop in self._held.get(session, []):
                stop.set()

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))
