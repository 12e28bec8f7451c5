"""Two buffers in turn: what is taken is what was stored, whatever is reused at once; no copy is left."""

from __future__ import annotations

import random
import threading
import time

import pytest
import torch

from kvviz.offload.copies import Copies, InlineCopies, StreamCopies, ThreadCopies
from kvviz.offload.prefetch import Prefetch
from kvviz.offload.timeline import Timeline

LAYERS, ROUNDS = 6, 150


def ways() -> list[str]:
    return ["inline", "thread", *(["stream", "thread-stream"] if torch.cuda.is_available() else [])]


def opened(way: str) -> tuple[torch.device, Copies]:
    device = torch.device("cuda" if "stream" in way else "cpu")
    inner = StreamCopies(device) if "stream" in way else InlineCopies()
    return device, ThreadCopies(inner) if way.startswith("thread") else inner


def layer_tensor(layer: int, round_: int, rows: int) -> torch.Tensor:
    """Every number tells layer and round, so that a wrong or stale row is seen."""
    marked = torch.full((1, 2, rows, 8), 1000 * round_ + layer, dtype=torch.int32)
    return marked + 200_000 * torch.arange(rows, dtype=torch.int32)[:, None]


@pytest.mark.parametrize("way", ways())
def test_no_round_reads_a_corrupt_copy(way):
    """Buffers are overwritten the moment they are given back; sources grow between request and take."""
    device, copies = opened(way)
    prefetch, draw, wrong = Prefetch(device, copies, Timeline(device)), random.Random(0), 0
    for round_ in range(ROUNDS):
        rows = [draw.randrange(1, 40) for _ in range(LAYERS)]
        early = [draw.randrange(0, n + 1) for n in rows]
        whole = [layer_tensor(layer, round_, n) for layer, n in enumerate(rows)]
        if device.type == "cuda":
            whole = [tensor.pin_memory() for tensor in whole]

        def request(layer: int, whole=whole, early=early, rows=rows) -> None:
            prefetch.request(layer, {"x": [whole[layer][:, :, : early[layer]]]}, {"x": rows[layer]})

        request(0)
        for layer in range(LAYERS):
            cut = draw.randrange(0, rows[layer] + 1)
            pieces = [whole[layer][:, :, :cut], whole[layer][:, :, cut:]]
            found = prefetch.take(layer, {"x": pieces}, {"x": rows[layer]})["x"]
            if layer + 1 < LAYERS:
                request(layer + 1)
            wrong += not torch.equal(found.cpu(), whole[layer])
            found.fill_(-1)  # what a later reader would see of a buffer that was not filled again
            prefetch.release()
    prefetch.close()
    assert wrong == 0
    assert prefetch.n_bytes == 0


def test_a_copy_that_fails_is_told_to_whoever_waits():
    copies = ThreadCopies(InlineCopies())

    def fail() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        copies.wait(copies.start(fail, None))
    copies.close()


def test_cancelling_in_the_middle_of_a_copy_leaves_no_thread():
    before, begun, go = threading.active_count(), threading.Event(), threading.Event()
    copies = ThreadCopies(InlineCopies())

    def slow() -> None:
        begun.set()
        go.wait(10)

    copies.start(slow, None)
    never = copies.start(lambda: None, None)
    assert begun.wait(10)
    threading.Timer(0.05, go.set).start()
    copies.close()
    assert never.cancelled()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
