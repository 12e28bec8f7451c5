"""Two buffers on the device, filled in turn: while one is read, the other is being filled.

Layers share the two, even ones the first and odd ones the second. No buffer is filled before its last
reader's mark, and none is read before its copy has arrived. Knows tensors by name, not what they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kvviz.offload.copies import Copies
from kvviz.offload.timeline import Timeline

_HEADROOM = 8


@dataclass
class _Slot:
    """One buffer a name, with room for some rows of axis 2."""

    buffers: dict[str, Tensor] = field(default_factory=dict)
    free_after: Any = None


@dataclass
class _Request:
    layer: int
    rows: dict[str, int]
    n_bytes: int
    ticket: Any


#: name -> consecutive tensors that become one along axis 2
Sources = Mapping[str, Sequence[Tensor]]


class Prefetch:
    """Brings the far tensors of one layer back while the layer before computes."""

    def __init__(self, device: torch.device, copies: Copies, timeline: Timeline) -> None:
        self._device, self._copies, self._timeline = device, copies, timeline
        self._slots = (_Slot(), _Slot())
        self._pending: _Request | None = None
        self._taken: _Slot | None = None

    def request(self, layer: int, sources: Sources, most_rows: Mapping[str, int]) -> None:
        """Begin to bring ``layer``'s tensors; ``most_rows``: the rows that :meth:`take` may find."""
        if not any(sources.values()):
            return
        slot = self._slots[layer % 2]
        after = self._make_room(slot, sources, most_rows)
        pairs = _pairs(slot, sources, {name: 0 for name in sources})
        n_bytes = sum(source.nbytes for source, _ in pairs)
        synchronous = self._copies.is_synchronous
        with self._timeline.blocking("copy_in", layer, n_bytes) if synchronous else nullcontext():
            ticket = self._copies.start(lambda: _copy(pairs), after)
        rows = {name: _rows(tensors) for name, tensors in sources.items()}
        self._pending = _Request(layer, rows, n_bytes, ticket)

    def take(self, layer: int, sources: Sources, most_rows: Mapping[str, int]) -> dict[str, Tensor]:
        """``layer``'s tensors, each whole, on the device; valid until :meth:`release`. Rows that have come
        since the request are copied now."""
        if not any(sources.values()):
            self.drop()
            return {}
        if self._pending is None or self._pending.layer != layer:
            self.drop()
            self.request(layer, sources, most_rows)
        pending, slot = self._pending, self._slots[layer % 2]
        assert pending is not None
        self._pending = None
        self._arrive(pending)
        late = _pairs(slot, sources, pending.rows)
        if late:
            n_bytes = sum(source.nbytes for source, _ in late)
            with self._timeline.blocking("copy_in", layer, n_bytes):
                self._copies.wait(self._copies.start(lambda: _copy(late), self._copies.mark()))
        self._taken = slot
        return {name: slot.buffers[name][:, :, : _rows(tensors)] for name, tensors in sources.items()}

    def release(self) -> None:
        """What was taken has been read, as far as the device is asked."""
        if self._taken is not None:
            self._taken.free_after = self._copies.mark()
            self._taken = None

    def drop(self) -> None:
        """Forget a request that nobody will take; its error, if any, with it."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            try:
                self._copies.wait(pending.ticket)
            except Exception:  # noqa: BLE001 - nobody reads what it brought
                return

    def close(self) -> None:
        """End all copies and give the buffers back."""
        self._copies.close()
        self._pending = self._taken = None
        self._slots = (_Slot(), _Slot())

    @property
    def is_synchronous(self) -> bool:
        """True when nothing is computed while a copy is under way."""
        return self._copies.is_synchronous

    @property
    def n_bytes(self) -> int:
        """What both buffers take on the device."""
        return sum(tensor.nbytes for slot in self._slots for tensor in slot.buffers.values())

    def _arrive(self, pending: _Request) -> None:
        if self._copies.is_synchronous:
            self._copies.wait(pending.ticket)
            return
        with self._timeline.blocking("wait", pending.layer):
            done = self._copies.wait(pending.ticket)
        self._timeline.add("copy_in", pending.layer, done.start, done.stop, pending.n_bytes)

    def _make_room(self, slot: _Slot, sources: Sources, most_rows: Mapping[str, int]) -> Any:
        """Buffers large enough; returns the moment after which they may be written."""
        after = slot.free_after
        for name, tensors in sources.items():
            if not tensors:
                continue
            rows = max(most_rows[name], _rows(tensors))
            shape = list(tensors[0].shape)
            held = slot.buffers.get(name)
            if held is None or held.shape[2] < rows or not _alike(held, tensors[0]):
                shape[2] = rows + rows // _HEADROOM
                slot.buffers[name] = torch.empty(shape, dtype=tensors[0].dtype, device=self._device)
                after = self._copies.mark()  # the memory may have been something else's until now
        return after


def _alike(held: Tensor, source: Tensor) -> bool:
    """Everything but the length fits."""
    shapes = (list(x.shape[:2]) + list(x.shape[3:]) for x in (held, source))
    first, second = shapes
    return first == second and held.dtype is source.dtype


def _rows(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.shape[2] for tensor in tensors)


def _pairs(slot: _Slot, sources: Sources, have: Mapping[str, int]) -> list[tuple[Tensor, Tensor]]:
    """(source, target) for all rows from ``have`` on."""
    pairs = []
    for name, tensors in sources.items():
        at = 0
        for tensor in tensors:
            skip = min(max(0, have.get(name, 0) - at), tensor.shape[2])
            low, at = at + skip, at + tensor.shape[2]
            if low < at:
                pairs.append((tensor[:, :, skip:], slot.buffers[name][:, :, low:at]))
    return pairs


def _copy(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    for source, target in pairs:
        target.copy_(source, non_blocking=True)
        if target.is_cuda:
            target.record_stream(torch.cuda.current_stream())
