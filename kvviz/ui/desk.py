"""What a session has open in front of it: the visible tab, what the atlas shows, what was recomputed for it.

Knows choices and results; does not know gradio, nor how a result is computed. It outlives a run, so that the
next run is looked at in the same way.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from kvviz.timeline import USUAL_LINK

Shown = Literal["a", "b", "both"]
Mode = Literal["probability", "logits", "mean"]
SHOWN: tuple[Shown, ...] = ("a", "b", "both")
MODES: tuple[Mode, ...] = ("probability", "logits", "mean")
MAX_DESKS = 200
#: Changes that clear a desk of an earlier run's results.
NOTHING_RECOMPUTED: Mapping[str, Any] = MappingProxyType(
    {"wish": None, "fulfilled": None, "logits": MappingProxyType({}), "tiled": None, "tile": None}
)


@dataclass(frozen=True, slots=True)
class AtlasChoice:
    """What the atlas shows. ``step`` None follows the latest; ``seq`` is the page's count of requests."""

    shown: Shown = "a"
    mode: Mode = "probability"
    layer: int = 0
    head: int = 0
    step: int | None = None
    seq: int = 0

    @property
    def sides(self) -> tuple[int, ...]:
        """Indices of the configurations that are shown."""
        return {"a": (0,), "b": (1,), "both": (0, 1)}[self.shown]


@dataclass(frozen=True, slots=True)
class OffloadChoice:
    """What the Offload tab shows: a configuration, a step (None follows the latest), a link."""

    shown: int = 1
    step: int | None = None
    link: str = USUAL_LINK


@dataclass(frozen=True, slots=True)
class Wish:
    """Something to recompute: logits of ``layer``, or (with a window of tokens) an exact tile of it."""

    run_id: str
    layer: int
    sides: tuple[int, ...]
    rows: tuple[int, int] | None = None
    columns: tuple[int, int] | None = None

    @property
    def is_tile(self) -> bool:
        """True for a tile."""
        return self.rows is not None


@dataclass(frozen=True, slots=True)
class Desk:
    """One session's. ``logits`` holds those of one layer by configuration; ``tile`` is an ``ExactTile``."""

    visible: str = "run"
    choice: AtlasChoice = field(default_factory=AtlasChoice)
    offload: OffloadChoice = field(default_factory=OffloadChoice)
    wish: Wish | None = None
    fulfilled: Wish | None = None  # what ``logits`` is about
    logits: Mapping[int, Any] = field(default_factory=dict)
    tiled: Wish | None = None  # what ``tile`` is about
    tile: Any = None
    stop: threading.Event = field(default_factory=threading.Event)

    def logits_of(self, run_id: str, layer: int, side: int) -> Any:
        """The recomputed ``LogitMap``, or None."""
        done = self.fulfilled
        if done is None or (done.run_id, done.layer) != (run_id, layer):
            return None
        return self.logits.get(side)

    def tile_of(self, run_id: str, layer: int) -> Any:
        """The exact tile, while its run and layer are the ones shown."""
        done = self.tiled
        if done is None or done.sides[0] not in self.choice.sides:
            return None
        return self.tile if (done.run_id, done.layer) == (run_id, layer) else None


class DeskStore:
    """One desk a session, the least recently used dropped first. Belongs to one application."""

    def __init__(self, opening: AtlasChoice, max_desks: int = MAX_DESKS) -> None:
        self._opening, self._max_desks = opening, max_desks
        self._lock = threading.Lock()
        self._desks: OrderedDict[str, Desk] = OrderedDict()

    def get(self, session: str) -> Desk:
        """The session's desk as it is now."""
        with self._lock:
            return self._desks.get(session) or Desk(choice=self._opening)

    def change(self, session: str, **changes: Any) -> Desk:
        """Put some things of the desk into another state."""
        with self._lock:
            desk = replace(self._desks.get(session) or Desk(choice=self._opening), **changes)
            self._desks[session] = desk
            self._desks.move_to_end(session)
            while len(self._desks) > self._max_desks:
                self._desks.popitem(last=False)
            return desk

    def forget(self, session: str) -> None:
        """The session is gone: stop what is computed for it."""
        with self._lock:
            desk = self._desks.pop(session, None)
        if desk is not None:
            desk.stop.set()
