"""Models that are wanted, on their way, or here: loading starts once and is watched by many.

Knows how to ask a store; does not know what a model is made of, and no page.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from kvviz.catalogue import phrase
from kvviz.config import CacheConfig
from kvviz.errors import KvvizError
from kvviz.events import ModelFacts
from kvviz.ui.language import in_thread

logger = logging.getLogger(__name__)

#: a sentence, said when it is read, and the share done when it is known
Progress = Callable[[object, float | None], None]


class Store(Protocol):
    """Where models come from."""

    def get(self, name: str, *, progress: Progress | None = ...) -> Any: ...


@dataclass(frozen=True, slots=True)
class LoadState:
    """How far one model is. ``fraction`` is None while nobody can tell. Many read it, each in a language of
    their own, so ``message`` is said by ``str`` and not before."""

    phase: Literal["absent", "loading", "ready", "failed"] = "absent"
    message: object = ""
    fraction: float | None = None
    facts: ModelFacts | None = None
    model: Any = None  # what the store gave; only when ready


class Loader:
    """Watches a store load models. One instance belongs to one page application."""

    def __init__(self, store: Store, check_name: Callable[[str], None] | None = None) -> None:
        """``check_name`` refuses names that are not offered, before the store hears of them."""
        self._store, self._check_name = store, check_name
        self._lock = threading.Lock()
        self._states: dict[str, LoadState] = {}

    def state(self, name: str) -> LoadState:
        """How far ``name`` is."""
        with self._lock:
            return self._states.get(name, LoadState())

    def get(self, name: str) -> Any:
        """The model, loaded if need be; blocks meanwhile.

        Raises:
            KvvizError: it is not offered or cannot be had, in one plain sentence.
        """
        if self._check_name is not None:
            self._check_name(name)
        if self.state(name).phase != "ready":
            self._set(name, LoadState("loading", phrase("ui.model.loading")))
        try:
            model = self._store.get(name, progress=lambda words, share: self._tell(name, words, share))
        except KvvizError as error:
            self._set(name, LoadState("failed", error))
            raise
        except Exception:
            logger.exception("loading %s failed", name)
            self._set(name, LoadState("failed", phrase("ui.error.load", name=name)))
            raise
        self._set(name, LoadState("ready", facts=model.facts, model=model))
        return model

    def remarks(self, name: str, cache: CacheConfig) -> list[str]:
        """What speaks against ``cache`` on a model that is ready: a refusal, or warnings from its weights."""
        model = self.state(name).model
        if model is None:
            return []
        try:
            model.check(cache)
        except KvvizError as error:
            return [str(error)]
        return list(model.warnings(cache))

    def warm(self, name: str) -> None:
        """Start loading without waiting; a failure is kept in the state."""
        in_thread(self._try, name, called="kvviz-load")

    def _try(self, name: str) -> None:
        try:
            self.get(name)
        except Exception as error:  # noqa: BLE001  kept in the state, and told by the next run as well
            logger.info("%s is not loaded yet: %s", name, error)

    def _tell(self, name: str, words: object, share: float | None) -> None:
        with self._lock:
            known = self._states.get(name, LoadState())
            if known.phase == "loading":
                self._states[name] = replace(known, message=words, fraction=share)

    def _set(self, name: str, state: LoadState) -> None:
        with self._lock:
            self._states[name] = state
