"""What recorded steps come to: time by kind, overlap, bytes, and what another link would take for them.

Knows spans and arithmetic; knows no tensor, no drawing and no page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvviz.events import TIMELINE_KINDS, TIMELINE_NOTES, StepTimeline

COPIES = ("copy_in", "copy_out")
#: Moved or handed over; the other kinds carry no bytes.
CARRIED = (*COPIES, "host_attention")
#: while one of these goes on, a copy beside it costs nothing
WORK = ("compute", "host_attention")


@dataclass(frozen=True, slots=True)
class Link:
    """A connection between the device and cheaper memory, at its nominal rate in each direction."""

    key: str
    name: str
    bytes_per_s: float

    def ms(self, n_bytes: float) -> float:
        """``1000 * bytes / rate``."""
        return 1000 * n_bytes / self.bytes_per_s


#: PCIe with 16 lanes, NVLink-C2C, and an NVMe disk on 4 lanes of PCIe 4; GB are 10^9 bytes.
LINKS = (
    Link("pcie3", "PCIe 3 x16", 15.75e9),
    Link("pcie4", "PCIe 4 x16", 31.5e9),
    Link("pcie5", "PCIe 5 x16", 63e9),
    Link("nvlink_c2c", "NVLink-C2C", 450e9),
    Link("nvme", "NVMe (PCIe 4 x4)", 7.88e9),
)
USUAL_LINK = "pcie4"


def link_named(key: str) -> Link:
    """One of :data:`LINKS`; the usual one where there is none of this key."""
    return next((link for link in LINKS if link.key == key), LINKS[1])


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured, summed over ``steps`` steps through which ``rows`` tokens went."""

    steps: int
    rows: int
    total_ms: float
    ms: Mapping[str, float]  # by kind
    n_spans: Mapping[str, int]
    n_bytes: Mapping[str, int]
    hidden_ms: float  # copy time during which something was computed
    notes: tuple[str, ...]

    @property
    def copy_ms(self) -> float:
        """Both directions."""
        return sum(self.ms[kind] for kind in COPIES)

    @property
    def overlap(self) -> float | None:
        """Share of the copy time during which something was computed; None without a copy."""
        return self.hidden_ms / self.copy_ms if self.copy_ms else None

    def bytes_per_token(self, kind: str) -> float:
        """What was moved for each token that went through the model."""
        return self.n_bytes[kind] / max(1, self.rows)


def costs(timelines: Iterable[StepTimeline | None]) -> Costs | None:
    """What the recorded ones of some steps come to; None when none was recorded."""
    known = [timeline for timeline in timelines if timeline is not None]
    if not known:
        return None
    n_spans, n_bytes = dict.fromkeys(TIMELINE_KINDS, 0), dict.fromkeys(TIMELINE_KINDS, 0)
    ms = dict.fromkeys(TIMELINE_KINDS, 0.0)
    for timeline in known:
        for number, kind in enumerate(TIMELINE_KINDS):
            mine = timeline.kinds == number
            ms[kind] += float((_stops(timeline) - _starts(timeline))[mine].sum())
            n_spans[kind] += int(mine.sum())
            n_bytes[kind] += int(timeline.n_bytes[mine].sum())
    return Costs(
        steps=len(known),
        rows=sum(timeline.rows for timeline in known),
        total_ms=sum(float(_stops(timeline).max()) for timeline in known),
        ms=ms,
        n_spans=n_spans,
        n_bytes=n_bytes,
        hidden_ms=sum(hidden_ms(timeline) for timeline in known),
        notes=tuple(note for note in TIMELINE_NOTES if any(note in timeline.notes for timeline in known)),
    )


def hidden_ms(timeline: StepTimeline) -> float:
    """Copy time during which something was computed."""
    works = _of(timeline, WORK)
    starts, stops = _starts(timeline)[works], _stops(timeline)[works]
    order = np.argsort(starts, kind="stable")
    # spans of work that meet or overlap count once
    edges, busy = [0.0], [0.0]
    for start, stop in zip(starts[order], stops[order], strict=True):
        start = max(float(start), edges[-1])
        if stop > start:
            edges += [start, float(stop)]
            busy += [busy[-1], busy[-1] + float(stop) - start]
    copies = _of(timeline, COPIES)
    until = np.interp(_stops(timeline)[copies], edges, busy)
    return float((until - np.interp(_starts(timeline)[copies], edges, busy)).sum())


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """Computed from bytes, for one step. ``waits_ms``: what of the copies in would not hide behind the
    measured computing of the layer before; copies out are waited for as a whole."""

    link: Link
    in_ms: float
    out_ms: float
    handed_ms: float
    waits_ms: float

    @property
    def hidden(self) -> float | None:
        """Share of the copies in that would hide; None without any."""
        return 1 - self.waits_ms / self.in_ms if self.in_ms else None


def link_times(timeline: StepTimeline, link: Link) -> LinkTimes:
    """What ``link`` would take for the bytes of a step.

    The codes of layer l + 1 travel while layer l computes, so a step waits for
    ``sum_l max(0, bytes_l / rate - compute_(l-1))``; the first layer of a pass has nothing to hide behind.
    """
    incoming, computed = _by_layer(timeline, "copy_in"), _by_layer(timeline, "compute")
    waits = 0.0
    for (at, layer), (_, n_bytes) in incoming.items():
        waits += max(0.0, link.ms(n_bytes) - computed.get((at, layer - 1), (0.0, 0))[0])
    sums = {kind: int(timeline.n_bytes[_of(timeline, (kind,))].sum()) for kind in TIMELINE_KINDS}
    return LinkTimes(
        link=link,
        in_ms=link.ms(sums["copy_in"]),
        out_ms=link.ms(sums["copy_out"]),
        handed_ms=link.ms(sums["host_attention"]),
        waits_ms=waits,
    )


def _by_layer(timeline: StepTimeline, kind: str) -> dict[tuple[int, int], tuple[float, int]]:
    """(pass, layer) -> ms and bytes; every chunk of a prompt is a pass, which ends after the last layer."""
    layers, starts = timeline.layers.astype(np.int64), _starts(timeline)
    ends = np.sort(starts[_of(timeline, ("compute",)) & (layers == layers.max(initial=0))])
    found: dict[tuple[int, int], tuple[float, int]] = {}
    for at in np.flatnonzero(_of(timeline, (kind,))):
        key = int(np.searchsorted(ends, starts[at], side="left")), int(layers[at])
        ms, n_bytes = found.get(key, (0.0, 0))
        found[key] = ms + float(_stops(timeline)[at] - starts[at]), n_bytes + int(timeline.n_bytes[at])
    return found


def _of(timeline: StepTimeline, kinds: Sequence[str]) -> NDArray[np.bool_]:
    return np.isin(timeline.kinds, [TIMELINE_KINDS.index(kind) for kind in kinds])


def _starts(timeline: StepTimeline) -> NDArray[np.float64]:
    return timeline.start_ms.astype(np.float64)


def _stops(timeline: StepTimeline) -> NDArray[np.float64]:
    return timeline.stop_ms.astype(np.float64)


def to_plain(timelines: Sequence[StepTimeline | None]) -> dict[str, Any] | None:
    """The prompt and all steps after it as plain JSON values, measured; None where nothing was recorded. The
    links are computed from the bytes of the last step."""
    latest = next((timeline for timeline in reversed(timelines) if timeline is not None), None)
    if latest is None:
        return None
    prompt, decode = costs(timelines[:1]), costs(timelines[1:])
    return {
        "prompt": None if prompt is None else _plain_costs(prompt),
        "decode": None if decode is None else _plain_costs(decode),
        "links": {link.key: _plain_times(link_times(latest, link)) for link in LINKS},
    }


def _plain_costs(found: Costs) -> dict[str, Any]:
    return {
        "steps": found.steps,
        "tokens": found.rows,
        "total_ms": found.total_ms,
        "ms": dict(found.ms),
        "bytes": {kind: found.n_bytes[kind] for kind in CARRIED},
        "bytes_per_token": {kind: found.bytes_per_token(kind) for kind in CARRIED},
        "overlap": found.overlap,
        "notes": list(found.notes),
    }


def _plain_times(times: LinkTimes) -> dict[str, float]:
    return {
        "bytes_per_s": times.link.bytes_per_s,
        "in_ms": times.in_ms,
        "out_ms": times.out_ms,
        "handed_ms": times.handed_ms,
        "waits_ms": times.waits_ms,
    }


# -- storage -------------------------------------------------------------------------------------------------

PER_STEP = ("timeline_lengths", "timeline_rows", "timeline_notes")
_PER_SPAN = ("kinds", "layers", "start_ms", "stop_ms", "n_bytes")
ARRAYS = (*PER_STEP, *(f"timeline_{name}" for name in _PER_SPAN))


def to_arrays(timelines: Sequence[StepTimeline | None]) -> dict[str, NDArray[Any]]:
    """Plain arrays under the names of :data:`ARRAYS`; nothing where nothing was recorded."""
    known = [timeline for timeline in timelines if timeline is not None]
    if not known:
        return {}
    return {
        "timeline_lengths": np.asarray([0 if t is None else len(t.kinds) for t in timelines], dtype=np.int64),
        "timeline_rows": np.asarray([0 if t is None else t.rows for t in timelines], dtype=np.int64),
        "timeline_notes": np.asarray(
            [_bits(() if t is None else t.notes) for t in timelines], dtype=np.uint8
        ),
        **{f"timeline_{n}": np.concatenate([getattr(t, n) for t in known]) for n in _PER_SPAN},
    }


def from_arrays(arrays: Mapping[str, NDArray[Any]], steps: int) -> list[StepTimeline | None]:
    """Inverse of :func:`to_arrays` for ``steps`` steps."""
    if "timeline_lengths" not in arrays:
        return [None] * steps
    kinds = {"kinds": np.uint8, "layers": np.int16, "start_ms": np.float32, "stop_ms": np.float32}
    lengths = [int(n) for n in arrays["timeline_lengths"]]
    spans = {n: arrays[f"timeline_{n}"].astype(kinds.get(n, np.int64)) for n in _PER_SPAN}
    if any(len(x) != sum(lengths) for x in spans.values()) or min(lengths, default=0) < 0:
        raise ValueError("timeline")
    found: list[StepTimeline | None] = []
    at = 0
    given = (lengths, arrays["timeline_rows"], arrays["timeline_notes"])
    for length, rows, bits in zip(*given, strict=True):
        own = {name: x[at : at + length] for name, x in spans.items()}
        notes = tuple(note for place, note in enumerate(TIMELINE_NOTES) if int(bits) >> place & 1)
        found.append(StepTimeline(rows=int(rows), notes=notes, **own) if length else None)
        at += length
    return found


#: Two readings of a clock, one after the other: older records have a step's first span begin before it.
_CLOCK_MS = 0.01


def check(timelines: Iterable[StepTimeline | None], n_layers: int) -> None:
    """Refuse what no run writes.

    Raises:
        ValueError: names the part.
    """
    for timeline in filter(None, timelines):
        times = np.stack([_starts(timeline), _stops(timeline)])
        numbers = timeline.kinds.astype(np.int64), timeline.layers.astype(np.int64)
        rules = (
            all(x.min() >= 0 for x in (*numbers, timeline.n_bytes)) and timeline.rows >= 0,
            times.min() > -_CLOCK_MS,
            np.isfinite(times).all() and times.max() < 1e9 and (times[0] <= times[1]).all(),
            numbers[0].max() < len(TIMELINE_KINDS) and numbers[1].max() <= n_layers,
            timeline.n_bytes.max() < 1 << 50,
        )
        if not all(rules):
            raise ValueError("timeline")


def _bits(notes: Sequence[str]) -> int:
    return sum(1 << place for place, note in enumerate(TIMELINE_NOTES) if note in notes)
