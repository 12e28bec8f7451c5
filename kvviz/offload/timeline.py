"""When what happened in a step: computing, copies, waits, by layer, on one clock.

Off until somebody asks. On CUDA, moments are events of a stream and are read when the step is over; the
host's own are seconds, tied to the same zero. Knows no tensor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from kvviz.events import TIMELINE_KINDS, TIMELINE_NOTES, StepTimeline

#: seconds of the host's clock, or an event of a CUDA stream
Moment: TypeAlias = Any


class _Span(NamedTuple):
    kind: str
    layer: int
    start: Moment
    stop: Moment
    n_bytes: int


class Timeline:
    """Spans of the steps since they were last taken."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.enabled = False
        self.layer = 0
        self._rows = 0
        self._zero: tuple[Moment, float] | None = None
        self._since: Moment = None
        self._depth = 0
        self._spans: list[_Span] = []
        self._done: list[tuple[str, int, float, float, int]] = []
        self._offset_ms = 0.0

    def begin(self, rows: int) -> None:
        """A step of ``rows`` rows begins."""
        if not self.enabled:
            return
        if self._cuda:
            torch.cuda.synchronize()
        # Without CUDA both are one reading: of two, the first would lie before the step that it begins.
        now = time.perf_counter()
        self._zero = (self.moment() if self._cuda else now, now)
        self._since, self._spans, self.layer = self._zero[0], [], 0
        self._rows += rows

    def moment(self) -> Moment:
        """Now, as the device has it."""
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def add(self, kind: str, layer: int, start: Moment, stop: Moment, n_bytes: int = 0) -> None:
        """Something that went on beside the computing."""
        if self.enabled:
            self._spans.append(_Span(kind, layer, start, stop, n_bytes))

    @contextmanager
    def on_host(self, layer: int, n_bytes: int) -> Iterator[None]:
        """The host computes its part of ``layer``'s attention; a device that is not the host waits for it
        once its own part is done. ``n_bytes`` are handed over both ways."""
        if not self._cuda:
            with self.blocking("host_attention", layer, n_bytes):
                yield
            return
        with self.blocking("wait", layer):
            start = time.perf_counter()
            yield
            self.add("host_attention", layer, start, time.perf_counter(), n_bytes)

    @contextmanager
    def blocking(self, kind: str, layer: int, n_bytes: int = 0) -> Iterator[None]:
        """Something during which nothing is computed; only the outermost counts."""
        if not self.enabled or self._zero is None or self._depth:
            yield
            return
        start = self.moment()
        self.add("compute", self.layer, self._since, start)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._since = self.moment()
            self.add(kind, layer, start, self._since, n_bytes)

    def end_layer(self) -> None:
        """The layer has read; what is computed from here on counts for the next."""
        if self.enabled and self._zero is not None:
            now = self.moment()
            self.add("compute", self.layer, self._since, now)
            self._since = now
            self.layer += 1

    def finish(self) -> None:
        """The step is over; steps since the last :meth:`take` follow one another."""
        if not self.enabled or self._zero is None:
            return
        self.add("compute", self.layer, self._since, self.moment())
        if self._cuda:
            torch.cuda.synchronize()
        spans = [(s.kind, s.layer, self._ms(s.start), self._ms(s.stop), s.n_bytes) for s in self._spans]
        self._done += [(k, n, a + self._offset_ms, b + self._offset_ms, size) for k, n, a, b, size in spans]
        self._offset_ms += max((stop for _, _, _, stop, _ in spans), default=0.0)
        self._zero = None

    def clear(self) -> None:
        """Forget everything, a step that was broken off with it."""
        self._zero, self._depth = None, 0
        self._spans, self._done, self._rows, self._offset_ms = [], [], 0, 0.0

    def take(self, notes: frozenset[str]) -> StepTimeline | None:
        """What was recorded since last time; None when nothing was. ``notes`` say how."""
        done = sorted((span for span in self._done if span[3] > span[2] or span[4]), key=lambda span: span[2])
        if not done:
            return None
        kinds, layers, starts, stops, sizes = zip(*done, strict=True)
        found = StepTimeline(
            rows=self._rows,
            kinds=np.asarray([TIMELINE_KINDS.index(kind) for kind in kinds], dtype=np.uint8),
            layers=np.asarray(layers, dtype=np.int16),
            start_ms=np.asarray(starts, dtype=np.float32),
            stop_ms=np.asarray(stops, dtype=np.float32),
            n_bytes=np.asarray(sizes, dtype=np.int64),
            notes=tuple(note for note in TIMELINE_NOTES if note in notes),
        )
        self.clear()
        return found

    def _ms(self, moment: Moment) -> float:
        assert self._zero is not None
        event, seconds = self._zero
        if isinstance(moment, float):
            return 1000 * (moment - seconds)
        elapsed: float = event.elapsed_time(moment)
        return elapsed
