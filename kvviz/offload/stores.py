"""Memory to put tensors in: the device, the host, or a file on disk that looks like memory.

Knows shapes and bytes; does not know what the numbers mean or who reads them.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

import torch
from torch import Tensor

from kvviz.errors import KvvizError
from kvviz.offload_config import Place
from kvviz.units import format_bytes

#: environment variable: the folder of the disk tier; the system's folder for temporary files without it
FOLDER_VARIABLE = "KVVIZ_OFFLOAD"
_ZEROS = bytes(1 << 20)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: what the system says -> the sentence under ``error``
_REASONS = (
    (_FULL, "offload_disk_full"),
    ((errno.EMFILE, errno.ENFILE), "offload_descriptors"),
    ((errno.ENOENT, errno.ENOTDIR), "offload_folder_missing"),
    ((errno.EACCES, errno.EPERM, errno.EROFS), "offload_folder_unwritable"),
)


class Store(Protocol):
    """A place that gives out storage."""

    @property
    def place(self) -> Place: ...

    @property
    def notes(self) -> frozenset[str]:
        """What did not go as it should have, by names of notes; empty as a rule."""
        ...

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A fresh contiguous tensor; it is freed with its last reference.

        Raises:
            KvvizError: there is no room.
        """
        ...

    def let_go(self, tensor: Tensor) -> None:
        """Nobody will touch ``tensor`` for a while: its pages need not stay in RAM. The contents do."""
        ...


class DeviceStore:
    """Where the model computes."""

    place = Place.DEVICE
    notes: frozenset[str] = frozenset()

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Device memory."""
        return torch.empty(tuple(shape), dtype=dtype, device=self._device)

    def let_go(self, tensor: Tensor) -> None:
        """It stays."""


class HostStore:
    """RAM; page-locked (``pinned``) for a device that copies from it by itself."""

    place = Place.HOST

    def __init__(self, *, pinned: bool) -> None:
        self._pinned = pinned
        self.notes: frozenset[str] = frozenset()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Page-locked memory is limited: without it memory is pageable, which is slower and not wrong."""
        if self._pinned:
            try:
                return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)
            except RuntimeError:
                self.notes |= {"pageable"}
        try:
            return torch.empty(tuple(shape), dtype=dtype)
        except (RuntimeError, MemoryError) as error:
            needed = format_bytes(math.prod(shape) * dtype.itemsize)
            raise KvvizError("offload_host_full", needed=needed) from error

    def let_go(self, tensor: Tensor) -> None:
        """It stays."""


class DiskStore:
    """Memory-mapped files without a name: nobody can remove them, and they are gone when the process is.

    Each tensor has a file (and a descriptor) of its own, reserved before it is mapped: a full disk that is
    met through a mapping kills the process, met here it is an error.
    """

    place = Place.DISK
    notes: frozenset[str] = frozenset()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mappings: weakref.WeakValueDictionary[int, mmap.mmap] = weakref.WeakValueDictionary()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Zeros in a file."""
        n_bytes = max(1, math.prod(shape) * dtype.itemsize)
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                _reserve(file, n_bytes)
                mapping = mmap.mmap(file.fileno(), n_bytes)
        except OSError as error:
            raise self._said(error, n_bytes) from error
        flat = torch.frombuffer(mapping, dtype=torch.uint8)
        self._mappings[flat.data_ptr()] = mapping
        return flat[: math.prod(shape) * dtype.itemsize].view(dtype).view(tuple(shape))

    def let_go(self, tensor: Tensor) -> None:
        """Unmap the pages; they stay in the file, and in the system's cache as long as it has room."""
        mapping = self._mappings.get(tensor.untyped_storage().data_ptr())
        if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED)

    def _said(self, error: OSError, n_bytes: int) -> KvvizError:
        code = next((code for numbers, code in _REASONS if error.errno in numbers), "offload_disk")
        return KvvizError(
            code,
            folder=self.folder,
            needed=format_bytes(n_bytes),
            reason=error.strerror,
            variable=FOLDER_VARIABLE,
        )


def _reserve(file: IO[bytes], n_bytes: int) -> None:
    """Make room for ``n_bytes`` on the disk itself, not only in the file's length."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, n_bytes)
        return
    for start in range(0, n_bytes, len(_ZEROS)):
        file.write(_ZEROS[: n_bytes - start])
    file.flush()


def offload_folder() -> Path:
    """Where files of the disk tier are made."""
    return Path(os.environ.get(FOLDER_VARIABLE) or tempfile.gettempdir())


def open_store(place: Place, device: torch.device) -> Store:
    """The store of one place for a model on ``device``."""
    match place:
        case Place.DEVICE:
            return DeviceStore(device)
        case Place.HOST:
            return HostStore(pinned=device.type == "cuda")
        case Place.DISK:
            return DiskStore(offload_folder())
