"""Where does this token live? Decided in integers alone; no tensor, no model, no bytes.

Row ``i`` is the query of token ``i``. The rules are those of the README's "What the cache means". Nothing
here depends on how tokens are fed: every answer is a function of the row, so whole prompts, chunks and single
tokens agree by construction.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.config import CacheConfig, Middle
from kvviz.events import Span, Tier


@dataclass(frozen=True, slots=True)
class PartPlan:
    """Positions ``[start, stop)`` held in one place, and what each row of the step sees of them."""

    tier: Tier
    start: int
    stop: int
    low: list[int]
    high: list[int]

    @property
    def is_seen(self) -> bool:
        """True when some row sees some position."""
        return any(high > low for low, high in zip(self.low, self.high, strict=True))


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What to do with rows ``[first, stop)``.

    ``drop_to``: exact positions below it are evicted before the rows read. ``seal_to``: blocks up to it are
    sealed before the rows read. ``keep_from``: exact positions below it are freed after the rows have read.
    """

    first: int
    stop: int
    drop_to: int
    seal_to: int
    keep_from: int
    parts: tuple[PartPlan, ...]


SEALED_TIERS = (Tier.QUANTIZED, Tier.OFFLOADED)


class Plan:
    """The cache rule of one configuration."""

    def __init__(self, config: CacheConfig, device_tokens: int | None = None) -> None:
        """``device_tokens``: so many sealed tokens stay on the device; None is all of them."""
        self.config = config
        self._device_tokens = device_tokens

    def sealed_stop(self, row: int) -> int:
        """First position after the blocks that ``row`` sees through their codes."""
        config = self.config
        if config.middle is not Middle.QUANTIZE:
            return config.sink_size
        outside_window = max(0, row - config.window_size + 1 - config.sink_size)
        return config.sink_size + outside_window // config.block_size * config.block_size

    def exact_start(self, row: int, frozen_stop: int | None = None) -> int:
        """First position after the sinks that ``row`` sees exactly.

        ``frozen_stop`` replaces the sealed edge while an exact prefill postpones sealing.
        """
        if self.config.middle is Middle.EVICT:
            return self.window_start(row)
        return self.sealed_stop(row) if frozen_stop is None else frozen_stop

    def window_start(self, row: int) -> int:
        """First window position of ``row``; sinks are never counted as window."""
        return max(self.config.sink_size, row - self.config.window_size + 1)

    def cache_position(self, row: int) -> int:
        """Where the query of ``row`` stands when positions are counted inside the cache."""
        if self.config.middle is not Middle.EVICT:
            return row
        return min(row, self.config.sink_size + self.config.window_size - 1)

    def step(self, first: int, stop: int, frozen_stop: int | None = None) -> StepPlan:
        """The plan of rows ``[first, stop)``, ``stop > first``."""
        last = stop - 1
        rows = range(first, stop)
        sinks = self.config.sink_size
        sealed = [self.sealed_stop(row) if frozen_stop is None else frozen_stop for row in rows]
        exact = [self.exact_start(row, frozen_stop) for row in rows]
        window = [self.window_start(row) for row in rows]
        # a short prompt may lie inside the sinks: then "after the sinks" is where it ends
        near = self._near_stop(sealed[-1])
        parts = [
            PartPlan(Tier.SINK, 0, min(sinks, stop), [0] * len(rows), [min(sinks, r + 1) for r in rows]),
            PartPlan(Tier.QUANTIZED, sinks, near, [sinks] * len(rows), [min(near, end) for end in sealed]),
            PartPlan(
                Tier.OFFLOADED, near, sealed[-1], [near] * len(rows), [max(near, end) for end in sealed]
            ),
            PartPlan(Tier.EXACT, exact[0], window[-1], exact, window),
            PartPlan(Tier.WINDOW, window[0], stop, window, [r + 1 for r in rows]),
        ]
        return StepPlan(
            first=first,
            stop=stop,
            drop_to=exact[0] if self.config.middle is Middle.EVICT else 0,
            seal_to=sealed[-1],
            keep_from=self.exact_start(last, frozen_stop),
            parts=tuple(part for part in parts if part.is_seen),
        )

    def _near_stop(self, sealed_stop: int) -> int:
        """First sealed position that is not on the device."""
        if self._device_tokens is None:
            return sealed_stop
        return min(sealed_stop, self.config.sink_size + self._device_tokens)

    def spans(self, tokens: int, frozen_stop: int | None = None) -> tuple[Span, ...]:
        """Tiers of positions ``[0, tokens)`` once their rows have been read."""
        if tokens == 0:
            return ()
        row, sinks = tokens - 1, min(self.config.sink_size, tokens)
        exact, window = self.exact_start(row, frozen_stop), self.window_start(row)
        evicts = self.config.middle is Middle.EVICT
        near = self.config.sink_size if evicts else self._near_stop(exact)
        edges = [
            Span(Tier.SINK, 0, sinks),
            Span(Tier.QUANTIZED, self.config.sink_size, near),
            Span(Tier.EVICTED if evicts else Tier.OFFLOADED, near, exact),
            Span(Tier.EXACT, exact, window),
            Span(Tier.WINDOW, window, tokens),
        ]
        return tuple(span for span in edges if span.stop > span.start)


def joined(parts: tuple[PartPlan, ...]) -> tuple[PartPlan, ...]:
    """The same with all sealed positions in one part: what is read together, wherever it lies."""
    sealed = [part for part in parts if part.tier in SEALED_TIERS]
    if len(sealed) < 2:
        return parts
    near, far = sealed
    high = [a if a < near.stop else b for a, b in zip(near.high, far.high, strict=True)]
    both = PartPlan(far.tier, near.start, far.stop, near.low, high)
    return tuple(both if part is far else part for part in parts if part is not near)


def joined_exact(parts: tuple[PartPlan, ...]) -> tuple[PartPlan, ...]:
    """The same with the exact middle and the window in one part: they lie side by side, and the one ends for
    every row where the other begins."""
    exact = [part for part in parts if part.tier in (Tier.EXACT, Tier.WINDOW)]
    if len(exact) < 2:
        return parts
    middle, window = exact
    both = PartPlan(window.tier, middle.start, window.stop, middle.low, window.high)
    return tuple(both if part is window else part for part in parts if part is not middle)
