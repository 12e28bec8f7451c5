"""Ways to carry a copy out: at once, on a side stream of a CUDA device, or by a thread.

A copy is a function that fills tensors. Whoever starts one says after which moment it may write, and waits
for it before reading; an error of the copy is raised there. Knows no layer and no buffer.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch

from kvviz.offload.timeline import Moment

#: a point in what the device computes; None where nothing is computed in the background
Mark: TypeAlias = Any
Copy: TypeAlias = Callable[[], None]


class Done(NamedTuple):
    """A copy that is on its way or has arrived, and when it went on."""

    start: Moment
    stop: Moment


class Copies(Protocol):
    """Carries copies out, in the order in which they are started."""

    @property
    def is_synchronous(self) -> bool:
        """True when :meth:`start` returns only after the copy."""
        ...

    def mark(self) -> Mark:
        """The end of everything computed so far."""
        ...

    def start(self, copy: Copy, after: Mark) -> Any:
        """Begin ``copy`` once ``after`` is over; returns a ticket."""
        ...

    def wait(self, ticket: Any) -> Done:
        """What is computed from here on comes after the copy.

        Raises:
            Exception: whatever the copy raised.
        """
        ...

    def close(self) -> None:
        """No copy is under way any more, whatever came of it."""
        ...


class InlineCopies:
    """At once: a machine without a copy engine."""

    is_synchronous = True

    def mark(self) -> Mark:
        """Nothing runs in the background."""
        return None

    def start(self, copy: Copy, after: Mark) -> Done:
        """Copies now."""
        start = time.perf_counter()
        copy()
        return Done(start, time.perf_counter())

    def wait(self, ticket: Done) -> Done:
        """It has arrived."""
        return ticket

    def close(self) -> None:
        """Nothing to end."""


class StreamCopies:
    """On a stream beside the one that computes; page-locked memory is copied without the host."""

    is_synchronous = False

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def mark(self) -> Mark:
        """An event of the computing stream."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event

    def start(self, copy: Copy, after: Mark) -> Done:
        """Enqueues; ``copy`` must copy with ``non_blocking=True``."""
        with torch.cuda.stream(self._stream):
            if after is not None:
                self._stream.wait_event(after)
            start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            stop = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            start.record()
            copy()
            stop.record()
        return Done(start, stop)

    def wait(self, ticket: Done) -> Done:
        """The computing stream waits, the host does not."""
        torch.cuda.current_stream().wait_event(ticket.stop)
        return ticket

    def close(self) -> None:
        """The host waits for the stream."""
        self._stream.synchronize()


class ThreadCopies:
    """By a thread, each through ``inner``: for sources that block whoever reads them, as a disk does."""

    is_synchronous = False

    def __init__(self, inner: Copies) -> None:
        self._inner = inner
        self._queue: queue.SimpleQueue[tuple[Copy, Mark, Future[Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def mark(self) -> Mark:
        """As ``inner`` has it."""
        return self._inner.mark()

    def start(self, copy: Copy, after: Mark) -> Future[Any]:
        """Hands it to the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="kvviz-copies", daemon=True)
            self._thread.start()
        ticket: Future[Any] = Future()
        self._queue.put((copy, after, ticket))
        return ticket

    def wait(self, ticket: Future[Any]) -> Done:
        """Waits for the thread, then as ``inner`` does."""
        return self._inner.wait(ticket.result())

    def close(self) -> None:
        """Ends the thread after what it has begun; the rest is dropped."""
        if self._thread is not None:
            while True:
                try:
                    waiting = self._queue.get_nowait()
                except queue.Empty:
                    break
                if waiting is not None:
                    waiting[2].cancel()
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        self._inner.close()

    def _work(self) -> None:
        with torch.inference_mode():
            while (given := self._queue.get()) is not None:
                copy, after, ticket = given
                try:
                    ticket.set_result(self._inner.start(copy, after))
                except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
                    ticket.set_exception(error)
                del given, copy, after, ticket


def open_copies(device: torch.device, *, from_disk: bool) -> Copies:
    """The best way to copy to ``device``."""
    if device.type != "cuda":
        return InlineCopies()
    stream = StreamCopies(device)
    return ThreadCopies(stream) if from_disk else stream
