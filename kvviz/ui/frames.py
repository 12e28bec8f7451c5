"""When each view of a running page is sent: at most so often, only when it changed, and always at the end.

Knows payload sizes and a clock; does not know what the views mean, nor gradio.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from kvviz.ui.components import encode

#: Seconds between two frames of a page.
TICK = 0.25
#: Least seconds between two payloads of a view; views that are not named go with every frame.
INTERVALS: Mapping[str, float] = MappingProxyType(
    {
        "strip_a": 0.5,
        "strip_b": 0.5,
        "memory": 1.5,
        "tier_map": 0.75,
        "tier_steps": 2.0,
        "quant_error": 2.0,
        "attention": 1.5,
        "atlas_thumbs": 3.0,
        "atlas_map": 1.0,
        "atlas_table": 2.0,
        "atlas_strip_a": 0.5,
        "atlas_strip_b": 0.5,
        "offload_timeline": 1.5,
        "offload_said": 1.0,
        "offload_tables": 1.5,
        "offload_links": 1.5,
    }
)
#: A view that grows is sent less often, so that none fills the line.
BYTES_PER_SECOND = 120_000


class FrameClock:
    """Decides for one watcher of one run."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._due: dict[str, float] = {}
        self._sent: dict[str, str] = {}

    def is_due(self, view: str) -> bool:
        """True when the view may be sent again."""
        return self._now() >= self._due.get(view, float("-inf"))

    def fresh(self, view: str, value: dict[str, Any]) -> str | None:
        """The payload, if it differs from what was sent last; takes note that it is sent now."""
        payload = encode(value)
        pause = max(INTERVALS.get(view, 0.0), len(payload) / BYTES_PER_SECOND)
        self._due[view] = self._now() + pause
        if self._sent.get(view) == payload:
            return None
        self._sent[view] = payload
        return payload

    def select(
        self, builders: Mapping[str, Callable[[], dict[str, Any]]], *, final: bool = False
    ) -> Iterator[tuple[str, str]]:
        """The views to send now, built only if they are due."""
        for view, build in builders.items():
            if final or self.is_due(view):
                payload = self.fresh(view, build())
                if payload is not None:
                    yield view, payload
