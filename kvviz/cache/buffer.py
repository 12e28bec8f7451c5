"""Tokens stored contiguously and grown in steps; knows a shape and a store, not what the numbers mean."""

from __future__ import annotations

import torch
from torch import Tensor

from kvviz.offload import DeviceStore, Store

_HEADROOM = 8  # capacity is at most length + length // 8: 12.5 %


class TokenBuffer:
    """A tensor with tokens on axis 2 that grows at the end and is cut at either side.

    Always contiguous in ``view()``'s storage, so that readers never loop over blocks.
    """

    def __init__(self, where: torch.device | Store, *, most_rows: int | None = None) -> None:
        """``most_rows``: no headroom beyond it; whoever appends keeps to it."""
        self._store = DeviceStore(where) if isinstance(where, torch.device) else where
        self._most_rows = most_rows
        self._storage: Tensor | None = None
        self._start = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def view(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Rows ``[start, stop)`` of what is held; shares storage, valid until the next change."""
        if self._storage is None:
            raise IndexError("nothing was ever stored")
        stop = self._length if stop is None else stop
        return self._storage[:, :, self._start + start : self._start + stop]

    def append(self, x: Tensor) -> None:
        """Add ``x (B, H, t, ...)`` at the end."""
        length = self._length + x.shape[2]
        if self._storage is None or self._start + length > self._storage.shape[2]:
            self._allocate(length, like=x)
        assert self._storage is not None
        self._storage[:, :, self._start + self._length : self._start + length] = x
        self._length = length
        self.let_go()

    def let_go(self) -> None:
        """What is held will not be read for a while: where it can, it leaves RAM."""
        if self._storage is not None:
            self._store.let_go(self._storage)

    def drop_front(self, count: int) -> None:
        """Forget the first ``count`` rows and give their memory back."""
        if count <= 0:
            return
        self._start += count
        self._length -= count
        self._shrink()

    def crop(self, length: int) -> None:
        """Keep the first ``length`` rows."""
        if length < self._length:
            self._length = length
            self._shrink()

    @property
    def row_bytes(self) -> int:
        """Bytes of one index of axis 2."""
        if self._storage is None:
            return 0
        return self._storage[:, :, 0].numel() * self._storage.element_size()

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the storage itself, spare room included."""
        return 0 if self._storage is None else self._storage.untyped_storage().nbytes()

    @property
    def storage(self) -> Tensor | None:
        """The live tensor, for audits."""
        return self._storage

    def _shrink(self) -> None:
        if self._length == 0:
            self._storage, self._start = None, 0
        elif self._storage is not None and self._storage.shape[2] > self._length + self._length // _HEADROOM:
            self._allocate(self._length, like=self._storage)

    def _allocate(self, length: int, *, like: Tensor) -> None:
        rows = length + length // _HEADROOM
        shape = list(like.shape)
        shape[2] = rows if self._most_rows is None else max(length, min(rows, self._most_rows))
        fresh = self._store.empty(shape, like.dtype)
        if self._length and self._storage is not None:
            fresh[:, :, : self._length] = self.view()
        self._storage, self._start = fresh, 0
