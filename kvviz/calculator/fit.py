"""Does it fit, what is the largest context that fits, how many users fit?

Knows bytes, not what working memory a step needs: that is what ``reserve_bytes`` is kept free for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kvviz.calculator.formula import DEVICE, DISK, HOST, KvBytes, full_bytes, kv_bytes, layer_groups
from kvviz.calculator.shapes import ModelShape
from kvviz.catalogue import text
from kvviz.config import CacheConfig, Middle
from kvviz.errors import ConfigError

GIB = 1 << 30
MOST_TOKENS = 1 << 31  # no context that anybody asks for; what fits there fits for ever
_MOST = {"context_tokens": MOST_TOKENS, "users": 1_000_000, "page_size": 65_536}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. ``weights_bits`` None: the published checkpoint. ``dtype_bytes``: of exact K and V.

    Raises:
        ConfigError: a number outside its range, or a quantizer whose group does not divide.
    """

    shape: ModelShape
    cache: CacheConfig = field(default_factory=CacheConfig)
    gpu_gib: float = 24.0
    reserve_gib: float = 1.0
    weights_bits: int | None = None
    context_tokens: int = 4096
    users: int = 1
    page_size: int = 1
    dtype_bytes: int = 2

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise ConfigError("calc_whole", name=_named(name), value=value, most=f"{most:,}")
        for name in ("gpu_gib", "reserve_gib"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e6:
                raise ConfigError("range", name=_named(name), value=value, low=0, high="1,000,000")
        self.cache.check_model(n_layers=self.shape.n_layers, head_dim=self.shape.head_dim, calibrated=True)

    @property
    def gpu_bytes(self) -> int:
        """All of the GPU."""
        return math.floor(self.gpu_gib * GIB)

    @property
    def reserve_bytes(self) -> int:
        """What is kept free."""
        return math.ceil(self.reserve_gib * GIB)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found. ``kv`` is one user's, ``peak_bytes`` the most it takes on the device while it grows.

    ``room_bytes``: the GPU less weights and reserve (may be negative). ``left_bytes``: the same less the
    peaks of all users. ``largest_context``: None when any length fits. ``users_that_fit``: at the asked
    context. ``host_bytes`` lie on host or disk.
    """

    question: Question
    weights_bytes: int
    kv: KvBytes
    full_bytes: int
    peak_bytes: int
    room_bytes: int
    left_bytes: int
    largest_context: int | None
    users_that_fit: int
    full_largest_context: int | None
    full_users_that_fit: int
    host_bytes: int

    @property
    def fits(self) -> bool:
        """True when nothing is missing."""
        return self.left_bytes >= 0

    @property
    def ratio(self) -> float:
        """16-bit full precision / this cache, device, host and disk together."""
        return self.full_bytes / self.kv.total_bytes


def _named(name: str) -> str:
    return text(f"calc.name.{name}")


def answer(question: Question) -> Answer:
    """Everything at once."""
    shape, tokens = question.shape, question.context_tokens
    weights = shape.weights_bytes(question.weights_bits)
    room = question.gpu_bytes - question.reserve_bytes - weights
    peak = peak_bytes(question, tokens)
    plain = replace(question, cache=CacheConfig(), dtype_bytes=2)
    kv = kv_bytes(shape, question.cache, tokens, question.dtype_bytes, question.page_size)
    return Answer(
        question=question,
        weights_bytes=weights,
        kv=kv,
        full_bytes=full_bytes(shape, tokens),
        peak_bytes=peak,
        room_bytes=room,
        left_bytes=room - question.users * peak,
        largest_context=largest_context(question, room),
        users_that_fit=max(0, room // peak),
        full_largest_context=largest_context(plain, room),
        full_users_that_fit=max(0, room // peak_bytes(plain, tokens)),
        host_bytes=question.users * (kv.bytes_on(HOST) + kv.bytes_on(DISK)),
    )


def peak_bytes(question: Question, tokens: int) -> int:
    """The most that one sequence takes on the device while it grows to ``tokens`` tokens.

    Sealing a block frees exact values, so bytes fall there, and the peak is one token earlier. Between two
    seals nothing falls; a block later nothing is smaller, unless a layer's own window has filled in between.
    So the latest seal of each kind before ``tokens``, and before each window is full, need a look, no more.
    """
    cache = question.cache
    candidates = {tokens}
    if cache.middle is Middle.QUANTIZE:
        windows = {group.window_tokens for group in layer_groups(question.shape, cache)}
        ends = {tokens, *(min(tokens, window) for window in windows if window is not None)}
        firsts = {cache.window_size + (cache.sink_size if window is None else 0) for window in windows}
        for end in ends:
            # ``first + n * block - 1``: the length just before a seal
            candidates |= {end - (end - first + 1) % cache.block_size for first in firsts}
        candidates |= ends
    return max(_device_bytes(question, count) for count in candidates if count >= 1)


def _device_bytes(question: Question, tokens: int) -> int:
    kv = kv_bytes(question.shape, question.cache, tokens, question.dtype_bytes, question.page_size)
    return kv.bytes_on(DEVICE)


def largest_context(question: Question, room_bytes: int) -> int | None:
    """The most tokens that each of ``question.users`` sequences can grow to; None: any length."""

    def fits(tokens: int) -> bool:
        return question.users * peak_bytes(question, tokens) <= room_bytes

    return None if fits(MOST_TOKENS) else _last(fits, MOST_TOKENS)


def _last(holds: Callable[[int], bool], beyond: int) -> int:
    """The last number below ``beyond`` that ``holds``: it does up to there and not after; 0 if never."""
    low, high = 0, beyond
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
