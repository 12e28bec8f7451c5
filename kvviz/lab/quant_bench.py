"""What several experiments on quantizers share: exact keys and values of a real reading, error measures.

Knows no experiment. Values are those of a full-precision run; what a cache would have sealed is cut out by
the cache's own rule.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence

from torch import Tensor

from kvviz.cache import CacheSession
from kvviz.config import CacheConfig
from kvviz.engine.run import check_length
from kvviz.errors import ConfigError
from kvviz.lab.bench import Bench, Tokens

SIDES = ("key", "value")


def read_exactly(bench: Bench, ids: Sequence[int]) -> Generator[Tokens, None, CacheSession]:
    """A session that has read ``ids`` in full precision; whoever asked for it resets it."""
    session = bench.model.new_session(CacheConfig())
    yield from bench.read(ids, session)
    return session


def check_text(bench: Bench, start: int, length: int, cache: CacheConfig) -> None:
    """Refuse a text without one whole block behind the sinks, one that the corpus or the model has no room
    for, and a cache that does not fit the model.

    Raises:
        ConfigError: says which.
    """
    bench.model.check(cache)
    least = cache.sink_size + cache.block_size
    if length < least:
        raise ConfigError("lab_no_block", tokens=length, least=least)
    check_length(bench.model, False, length, 0)
    bench.text(start, length)


def check_place(name: str, value: int, count: int) -> None:
    """Refuse a layer or a head that the model does not have.

    Raises:
        ConfigError: says how many there are.
    """
    if value >= count:
        raise ConfigError("range", name=name, value=value, low=0, high=count - 1)


def relative_error(exact: Tensor, restored: Tensor) -> float:
    """``sqrt(sum (x - y)^2 / sum x^2)`` in float64; 0 where nothing is lost, NaN without a signal."""
    wide = exact.double()
    error, signal = float((wide - restored.double()).square().sum()), float(wide.square().sum())
    return math.sqrt(error / signal) if signal else (0.0 if not error else math.nan)


def snr_db(relative: float) -> float | None:
    """``10 log10(signal / error)``; None where nothing is lost."""
    return -20 * math.log10(relative) if relative > 0 else None
