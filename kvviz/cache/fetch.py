"""Sealed blocks on their way to the device: which tensors a layer needs, and where they are put meanwhile.

Ties sealed sides to :class:`kvviz.offload.Prefetch`; decides nothing about streams or buffers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kvviz.cache.pieces import Space
from kvviz.cache.sealed import SealedBlocks
from kvviz.offload import Prefetch, Timeline, open_copies
from kvviz.offload_config import Place


class Fetch:
    """Brings a layer's far codes one layer ahead."""

    def __init__(self, prefetch: Prefetch) -> None:
        self._prefetch = prefetch

    def request(self, layer: int, sealed: SealedBlocks, seal_to: int) -> None:
        """Begin to bring what ``layer`` has; up to position ``seal_to`` may be sealed before it is taken."""
        self._prefetch.request(layer, _sources(sealed), _most_rows(sealed, seal_to))

    def take(self, layer: int, sealed: SealedBlocks, seal_to: int) -> None:
        """From here on ``sealed`` reads its far codes on the device."""
        found = self._prefetch.take(layer, _sources(sealed), _most_rows(sealed, seal_to))
        for name, side in sealed.sides.items():
            staged = {part: found.get(f"{name}.{part}") for part in side.quantizer.tokens_per_row}
            side.staged = {part: tensor for part, tensor in staged.items() if tensor is not None}

    def release(self, sealed: SealedBlocks) -> None:
        """``sealed`` has been read."""
        for side in sealed.sides.values():
            side.staged = {}
        self._prefetch.release()

    def drop(self) -> None:
        """Nobody takes what was requested last."""
        self._prefetch.drop()

    def close(self) -> None:
        """End all copies and give the buffers back."""
        self._prefetch.close()

    @property
    def is_synchronous(self) -> bool:
        """True when nothing is computed while a copy is under way."""
        return self._prefetch.is_synchronous

    @property
    def n_bytes(self) -> int:
        """What the buffers take."""
        return self._prefetch.n_bytes


def fetch_of(spaces: Sequence[Space], device: torch.device, timeline: Timeline) -> Fetch | None:
    """None when everything is on the device."""
    places = {space.store.place for space in spaces}
    if places == {Place.DEVICE}:
        return None
    copies = open_copies(device, from_disk=Place.DISK in places)
    return Fetch(Prefetch(device, copies, timeline))


def notes_of(fetch: Fetch | None, spaces: Sequence[Space], device: torch.device) -> frozenset[str]:
    """What is not as it could be, of :data:`kvviz.events.TIMELINE_NOTES`."""
    notes = frozenset[str]().union(*(space.store.notes for space in spaces))
    if fetch is not None and fetch.is_synchronous:
        return notes | {"copies_synchronous"}
    return notes | {"host_is_device"} if fetch is None and device.type == "cpu" else notes


def _sources(sealed: SealedBlocks) -> dict[str, list[Tensor]]:
    return {
        f"{name}.{part}": tensors
        for name, side in sealed.sides.items()
        for part, tensors in side.far_parts().items()
    }


def _most_rows(sealed: SealedBlocks, seal_to: int) -> dict[str, int]:
    return {
        f"{name}.{part}": max(0, seal_to - sealed.first - side.far_start) // rows
        for name, side in sealed.sides.items()
        for part, rows in side.quantizer.tokens_per_row.items()
    }
