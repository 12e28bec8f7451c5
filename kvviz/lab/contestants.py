"""Who is timed against whom: named ways of reading one text, ours and the library's, behind one contract.

Knows configurations by name; times nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from kvviz.catalogue import text
from kvviz.config import CacheConfig
from kvviz.engine import LanguageModel
from kvviz.models.library import LibraryCache, is_installed

#: of a prompt that everyone reads at a time; nobody looks at the attention, so larger chunks than a run's pay
CHUNK_TOKENS = 512
#: what every ratio's denominator is called
LIBRARY, FULL = "dynamic", "full"
PEERS: tuple[LibraryCache, ...] = ("quanto", "hqq")

_STREAMED = {"middle": "quantize", "sink_size": 4, "window_size": 128, "block_size": 64}
_INT8 = "int8:token:g64:absmax"
_K8V4 = _STREAMED | {"key": _INT8, "value": "int4:token:g64:absmax"}
#: name -> fields of CacheConfig
_OURS: dict[str, dict[str, object]] = {
    FULL: {},
    "sinks-window": {"middle": "evict", "sink_size": 4, "window_size": 128},
    "int8": _STREAMED | {"key": _INT8, "value": _INT8},
    "k8v4": _K8V4,
    "kivi-4": _STREAMED
    | {"sink_size": 0, "block_size": 32, "key": "int4:channel:g32:minmax", "value": "int4:token:g32:minmax"},
    "full-stack": _K8V4 | {"offload": "host"},
    "full-stack-disk": _K8V4 | {"offload": "disk"},
}
NAMES = (LIBRARY, *_OURS, *PEERS)


class Reading(Protocol):
    """One text on its way through one cache."""

    def feed(self, ids: Sequence[int]) -> object:
        """Read ``ids`` at once."""

    def held_bytes(self) -> int:
        """Bytes of keys and values that are held now."""

    def close(self) -> None:
        """Give the memory back."""


class _OwnReading:
    """Through one of our sessions."""

    def __init__(self, model: LanguageModel, cache: CacheConfig) -> None:
        self._model = model
        self._session = model.new_session(cache)

    def feed(self, ids: Sequence[int]) -> object:
        return self._model.forward(ids, self._session, last_only=True)

    def held_bytes(self) -> int:
        return self._session.memory().used_bytes

    def close(self) -> None:
        self._session.reset()


@dataclass(frozen=True, slots=True)
class Contestant:
    """A name, and how its readings begin. ``is_peer``: a quantized cache of the library."""

    name: str
    maker: Literal["kvviz", "library"]
    is_peer: bool = False

    @property
    def reads_at_once(self) -> bool:
        """Also timed on the whole prompt at once: how a cache of the library reads unless it is cut."""
        return self.maker == "library"

    @property
    def label(self) -> str:
        """How it is called."""
        return text(f"lab.speed.control.caches.option.{self.name}")

    def reading(self, model: LanguageModel) -> Reading:
        """An empty one."""
        if self.maker == "library":
            return model.library_reading(self.name)  # type: ignore[arg-type]
        return _OwnReading(model, cache_of(self.name))


def cache_of(name: str) -> CacheConfig:
    """The settings of one of ours."""
    return CacheConfig.from_dict(_OURS[name])


def contestants(names: Sequence[str]) -> tuple[list[Contestant], list[str]]:
    """Those of ``names`` that can be had, and the names whose optional package is missing."""
    chosen, missing = [], []
    for name in names:
        if name in _OURS:
            chosen.append(Contestant(name, "kvviz"))
        elif is_installed(name):  # type: ignore[arg-type]
            chosen.append(Contestant(name, "library", name in PEERS))
        else:
            missing.append(name)
    return chosen, missing
