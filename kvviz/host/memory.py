"""Would it fit? The bytes that a request will take, by the calculator's formula, against what is free now.

Knows shapes and settings, not tensors; functions that are handed in ask the machine for its free bytes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from kvviz.calculator import ModelShape, Question, full_bytes, kv_bytes, peak_bytes
from kvviz.config import PROMPT_CHUNK_TOKENS, CacheConfig, OffloadRead
from kvviz.errors import KvvizError
from kvviz.events import MASS_TIERS, ModelFacts
from kvviz.units import format_bytes

DEVICE, HOST, DISK = "device", "host", "disk"
#: Growth of a buffer: reserved bytes exceed used ones by an eighth at most.
_GROWN = (9, 8)
#: A record's map has at most this many cells a side, float16.
_MAP_CELLS, _MAP_BYTES = 320, 2
_FLOAT_BYTES = 4
_STAGED_LAYERS = 2
_HEAD_SUMMARIES = 3  # entropy, distance and first-token mass, beside the mass of every tier
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes at the same time: of the device that computes, and of the host's RAM."""

    device_bytes: int = 0
    host_bytes: int = 0

    def __add__(self, other: Need) -> Need:
        return Need(self.device_bytes + other.device_bytes, self.host_bytes + other.host_bytes)

    def or_more(self, other: Need) -> Need:
        """Enough for either, one after the other."""
        return Need(max(self.device_bytes, other.device_bytes), max(self.host_bytes, other.host_bytes))

    @property
    def total_bytes(self) -> int:
        """Both."""
        return self.device_bytes + self.host_bytes


def shape_of(facts: ModelFacts) -> ModelShape:
    """A loaded model as the calculator knows models."""
    return ModelShape(
        facts.name, facts.n_layers, facts.n_heads, facts.n_kv_heads, facts.head_dim, facts.context_tokens,
        parameters=max(1, facts.weights_bytes // facts.dtype_bytes),
    )  # fmt: skip


def cache_need(
    facts: ModelFacts, cache: CacheConfig, tokens: int, chunk_size: int = PROMPT_CHUNK_TOKENS
) -> Need:
    """One sequence of ``tokens`` tokens through ``cache``: the peak while it grows, a chunk that is not
    sealed yet, the headroom of growing buffers, and what brings offloaded blocks back."""
    shape, most = shape_of(facts), max(1, tokens)
    question = Question(shape, cache, context_tokens=most, dtype_bytes=facts.dtype_bytes)
    chunk = full_bytes(shape, min(chunk_size, most), facts.dtype_bytes)
    held = kv_bytes(shape, cache, most, facts.dtype_bytes)
    on_host, away = held.bytes_on(HOST), held.bytes_on(HOST) + held.bytes_on(DISK)
    on_device = peak_bytes(question, most) + chunk
    if away and cache.offload_read is OffloadRead.PREFETCH:
        # two buffers of one layer each; a layer with settings of its own may be larger than the others
        layers = full_bytes(shape, most, facts.dtype_bytes) if cache.overrides else away
        on_device += _STAGED_LAYERS * -(-layers // facts.n_layers)
    return Need(on_device * _GROWN[0] // _GROWN[1], on_host * _GROWN[0] // _GROWN[1])


def record_need(facts: ModelFacts, tokens: int, new_tokens: int) -> Need:
    """What is remembered of a run: a map of every head, and for each new token its numbers by head and tier,
    and the newest row's weight on each token."""
    heads = facts.n_layers * facts.n_heads
    cells = min(tokens, _MAP_CELLS)
    per_step = heads * (2 * len(MASS_TIERS) + _HEAD_SUMMARIES) * _FLOAT_BYTES + tokens * _FLOAT_BYTES
    return Need(0, heads * cells * cells * _MAP_BYTES + new_tokens * per_step)


def run_need(facts: ModelFacts, cache: CacheConfig, prompt_tokens: int, new_tokens: int) -> Need:
    """One generation: its cache and its record."""
    tokens = prompt_tokens + new_tokens
    return cache_need(facts, cache, tokens) + record_need(facts, tokens, new_tokens)


def logits_need(facts: ModelFacts, rows: int = 256) -> Need:
    """Logits and log-probabilities of ``rows`` rows, for full precision and for a configuration."""
    return Need(4 * rows * facts.vocab_size * _FLOAT_BYTES)


def free_host_bytes() -> int:
    """RAM that can be had: what the machine has left, or its container may still take, if that is less."""
    free = int(psutil.virtual_memory().available)
    limits = (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    )
    for limit, usage, stat in limits:
        most, used = _number(_CGROUP / limit), _number(_CGROUP / usage)
        if most is not None and used is not None:
            free = min(free, most - used + _reclaimable(_CGROUP / stat))
    return max(0, free)


def _number(path: Path) -> int | None:
    try:
        words = path.read_text().strip()
    except OSError:
        return None
    return int(words) if words.isdecimal() else None


def _reclaimable(path: Path) -> int:
    """Cached files count as used in a container, and are given up when memory is wanted."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    found = (line.split() for line in lines)
    return sum(int(line[1]) for line in found if len(line) == 2 and line[0] == "inactive_file")


def resident_bytes() -> int:
    """RAM that this process holds."""
    return int(psutil.Process(os.getpid()).memory_info().rss)


@dataclass(frozen=True, slots=True)
class Memory:
    """How to ask for free bytes: of the host, and of a device by its name (the host's for a CPU)."""

    host: Callable[[], int] = free_host_bytes
    device: Callable[[str], int] | None = None

    def free(self, facts: ModelFacts) -> tuple[int, int]:
        """Free bytes of the model's device and of the host."""
        host = self.host()
        if facts.device.startswith("cpu") or self.device is None:
            return host, host
        return self.device(facts.device), host


class MemoryGuard:
    """Refuses before it starts what would not fit beside what was let in and has not ended."""

    def __init__(self, memory: Memory, keep_free_bytes: int) -> None:
        self.memory = memory
        self._keep_free_bytes = keep_free_bytes
        self._lock = threading.Lock()
        self._promised: list[Need] = []

    @property
    def promised_bytes(self) -> int:
        """What was let in and has not ended."""
        with self._lock:
            return sum(self._promised, Need()).total_bytes

    def check(self, facts: ModelFacts, needs: Sequence[Need]) -> Need:
        """The sum of ``needs``, if it could be had now were nothing else running.

        Raises:
            KvvizError: says the bytes it would take and those that are free.
        """
        need = sum(needs, Need())
        self._compare(facts, need, Need())
        return need

    @contextlib.contextmanager
    def promised(self, facts: ModelFacts, need: Need) -> Iterator[None]:
        """Take ``need`` while the block runs. What others were promised counts in full, although they may
        hold part of it already: two requests that start together must not count the same bytes.

        Raises:
            KvvizError: it does not fit beside them.
        """
        with self._lock:
            self._compare(facts, need, sum(self._promised, Need()))
            self._promised.append(need)
        try:
            yield
        finally:
            with self._lock:
                self._promised.remove(need)

    def _compare(self, facts: ModelFacts, need: Need, taken: Need) -> None:
        device, host = self.memory.free(facts)
        if facts.device.startswith("cpu"):  # one RAM
            self._refuse(need.total_bytes, host - taken.total_bytes)
        else:
            self._refuse(need.device_bytes, device - taken.device_bytes)
            self._refuse(need.host_bytes, host - taken.host_bytes)

    def _refuse(self, need_bytes: int, free_bytes: int) -> None:
        room = free_bytes - self._keep_free_bytes
        if need_bytes > room:
            raise KvvizError(
                "host_memory",
                need=format_bytes(need_bytes),
                room=format_bytes(max(0, room)),
                kept=format_bytes(self._keep_free_bytes),
            )
