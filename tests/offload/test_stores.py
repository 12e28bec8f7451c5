"""Stores: what is put in comes out, faults are plain errors, and nothing is left behind."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kvviz.errors import KvvizError
from kvviz.offload import DiskStore, HostStore, open_store
from kvviz.offload.stores import FOLDER_VARIABLE
from kvviz.offload_config import Place

CPU = torch.device("cpu")
DTYPES = (torch.uint8, torch.int32, torch.uint16, torch.float16, torch.bfloat16, torch.float32, torch.float64)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_file_is_memory(tmp_path, dtype):
    store = DiskStore(tmp_path)
    tensor = store.empty((1, 2, 5, 3), dtype)
    assert tensor.shape == (1, 2, 5, 3)
    assert tensor.dtype is dtype
    assert tensor.is_contiguous()
    assert tensor.untyped_storage().nbytes() == 30 * dtype.itemsize
    values = torch.randint(0, 100, tensor.shape).to(dtype)
    tensor.copy_(values)
    for _ in range(2):
        store.let_go(tensor)
        assert torch.equal(tensor.to(torch.float64), values.to(torch.float64))


def test_files_have_no_name_and_go_with_their_tensors(tmp_path):
    before = descriptors()
    store = DiskStore(tmp_path)
    held = [store.empty((1000,), torch.float32) for _ in range(5)]
    assert list(tmp_path.iterdir()) == []
    assert descriptors() == before + 5
    view = held[0][10:20]
    del held
    assert descriptors() == before + 1  # a view keeps its file
    view.fill_(3)
    del view
    assert descriptors() == before


def test_the_folder_may_go_while_tensors_live(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    store = DiskStore(folder)
    tensor = store.empty((1000,), torch.int32)
    folder.rmdir()
    tensor.copy_(torch.arange(1000))
    store.let_go(tensor)
    assert torch.equal(tensor, torch.arange(1000, dtype=torch.int32))
    assert refused(store) == "offload_folder_missing"


def refused(store, size: int = 1000) -> str:
    with pytest.raises(KvvizError) as caught:
        store.empty((size,), torch.float32)
    assert str(store.folder) in str(caught.value)
    return caught.value.code


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    assert refused(DiskStore(tmp_path / "file")) == "offload_folder_missing"


def test_a_full_disk_is_met_before_the_mapping(tmp_path):
    """A limit on the size of files stands in for the disk: the system refuses in the same place."""
    before, limits = descriptors(), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        assert refused(DiskStore(tmp_path), 1 << 20) == "offload_disk_full"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert descriptors() == before
    assert DiskStore(tmp_path).empty((1 << 20,), torch.float32).nbytes == 4 << 20


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "offload_disk_full"), (errno.EDQUOT, "offload_disk_full"),
        (errno.EROFS, "offload_folder_unwritable"), (errno.EACCES, "offload_folder_unwritable"),
        (errno.EIO, "offload_disk"),
    ],
)  # fmt: skip
def test_what_the_system_says_is_told(tmp_path, monkeypatch, number, code):
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    before = descriptors()
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert refused(DiskStore(tmp_path)) == code
    assert descriptors() == before


def test_without_fallocate_the_room_is_written(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    tensor = DiskStore(tmp_path).empty((3, (1 << 19) + 5), torch.uint8)
    assert tensor.count_nonzero() == 0
    tensor.fill_(7)
    assert int(tensor.sum()) == 7 * tensor.numel()


def test_no_descriptors_left(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 3, limits[1]))
    held = []
    try:
        with pytest.raises(KvvizError) as caught:
            held += [DiskStore(tmp_path).empty((10,), torch.uint8) for _ in range(highest + 9)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert caught.value.code == "offload_descriptors"


def test_page_locked_memory_that_is_refused_becomes_pageable(monkeypatch):
    plain, asked = torch.empty, []

    def empty(*args: object, pin_memory: bool = False, **more: object) -> torch.Tensor:
        asked.append(pin_memory)
        if pin_memory:
            raise RuntimeError("CUDA error: out of memory")
        return plain(*args, **more)

    monkeypatch.setattr(torch, "empty", empty)
    store = HostStore(pinned=True)
    assert store.notes == frozenset()
    tensor = store.empty((2, 3), torch.int32)
    assert tensor.shape == (2, 3)
    assert not tensor.is_pinned()
    assert asked == [True, False]
    assert store.notes == {"pageable"}


def test_a_host_without_memory_is_a_plain_error():
    with pytest.raises(KvvizError) as caught:
        HostStore(pinned=False).empty((1 << 50,), torch.uint8)
    assert caught.value.code == "offload_host_full"


def test_the_folder_is_chosen_by_a_variable(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(KvvizError):
        open_store(Place.DISK, CPU).empty((1,), torch.uint8)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    store = open_store(Place.DISK, CPU)
    assert isinstance(store, DiskStore)
    assert store.folder == tmp_path


KILLED = """
import os, pathlib, signal, sys, torch
from kvviz.offload import DiskStore
held = [DiskStore(pathlib.Path(sys.argv[1])).empty((1 << 20,), torch.float32).fill_(1) for _ in range(3)]
print(len(os.listdir(sys.argv[1])), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_nothing(tmp_path):
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == ["0"]
    assert list(tmp_path.iterdir()) == []
