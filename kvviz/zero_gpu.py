"""Everything that computes, through one function that a ZeroGPU Space runs on a GPU lent for the call.

On such a Space the library ``spaces`` is there: the decorated function then runs in a forked process,
arguments and results are pickled, and CUDA exists nowhere else. The main process loads the model on the CPU;
the fork inherits it and moves it. Elsewhere :func:`workshop` gives the engine and the laboratory as they are.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

try:
    import spaces  # before torch touches CUDA
except ImportError:
    spaces = None

from kvviz import engine, lab
from kvviz.catalogue import language, speaking
from kvviz.config import CacheConfig, RunConfig
from kvviz.errors import KvvizError
from kvviz.record import RunRecord

#: Seconds for moving the model and for whatever else; of reading 1,000 tokens; of one token of one run.
_START_SECONDS, _READ_SECONDS, _TOKEN_SECONDS = 10.0, 1.0, 0.08
_LEAST_SECONDS, _MOST_SECONDS = 15, 120
#: Models that the main process has loaded, where a fork of it finds them: a model cannot be pickled.
_shelf: dict[str, engine.LanguageModel] = {}


@dataclass(frozen=True, slots=True)
class Task:
    """What to compute, in values that can be pickled. ``stop_file`` exists once it is to be stopped."""

    what: str
    model: str
    seconds: int
    stop_file: str
    language: str
    given: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)


class FileSwitch(threading.Event):
    """A stop switch between processes: thrown when a file is there."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def is_set(self) -> bool:
        """True once the file is there."""
        return super().is_set() or os.path.exists(self._path)


def seconds_of(task: Task) -> int:
    """How long the GPU is asked for."""
    return task.seconds


def guess_seconds(read_tokens: int, new_tokens: int) -> int:
    """For reading ``read_tokens`` and choosing ``new_tokens``, over all configurations together."""
    seconds = _START_SECONDS + _READ_SECONDS * read_tokens / 1000 + _TOKEN_SECONDS * new_tokens
    return round(min(_MOST_SECONDS, max(_LEAST_SECONDS, seconds)))


def _one(function: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """A function of one result, as one that tells it."""

    def tell(*given: Any, **named: Any) -> Iterator[Any]:
        yield function(*given, **named)

    return tell


_WORK: Mapping[str, Callable[..., Iterator[Any]]] = MappingProxyType(
    {
        "compare": engine.compare,
        "comparing": engine.comparing,
        "perform": lab.perform,
        "score": _one(engine.score),
        "exact_tile": _one(engine.exact_tile),
        "logit_map": _one(engine.logit_map),
    }
)


def _compute(task: Task) -> Iterator[Any]:
    """The only place where CUDA may be touched. A refusal is told and raised again by who asked."""
    model = engine.on_accelerator(_shelf[task.model])
    stop = FileSwitch(task.stop_file)
    with speaking(task.language):
        try:
            yield from _WORK[task.what](model, *task.given, **task.named, stop=stop)
        except KvvizError as error:
            yield error


on_gpu: Callable[[Task], Iterator[Any]] = (
    _compute if spaces is None else spaces.GPU(duration=seconds_of)(_compute)
)


def _ask(what: str, model: Any, seconds: int, *given: Any, stop: threading.Event | None, **named: Any) -> Any:
    """Results of a task as they come. ``stop`` is passed on with the next result: within two tokens."""
    _shelf[model.facts.name] = model
    with tempfile.TemporaryDirectory(prefix="kvviz-") as folder:
        switch = Path(folder) / "stop"
        task = Task(what, model.facts.name, seconds, str(switch), language(), given, named)
        with closing(cast(Any, on_gpu(task))) as results:
            try:
                for result in results:
                    if isinstance(result, KvvizError):
                        raise result
                    yield result
                    if stop is not None and stop.is_set():
                        switch.touch()
            finally:
                switch.touch()


class Lent:
    """The engine and the laboratory by tasks: the same names and signatures."""

    experiments = staticmethod(lab.experiments)

    def compare(
        self, model: Any, configs: Sequence[RunConfig], *, stop: threading.Event | None = None, **others: Any
    ) -> Iterator[Any]:
        """As ``engine.compare``; a refusal comes with the first event."""
        read = sum(len(model.encode(config.prompt, config.use_chat_template)) for config in configs)
        seconds = guess_seconds(read, sum(config.max_new_tokens for config in configs))
        events: Iterator[Any] = _ask("compare", model, seconds, list(configs), stop=stop, **others)
        return events

    def comparing(
        self, model: Any, request: Any, *, stop: threading.Event | None = None, **others: Any
    ) -> Iterator[Any]:
        """As ``engine.comparing``; a refusal comes with the first event."""
        events: Iterator[Any] = _ask("comparing", model, _MOST_SECONDS, request, stop=stop, **others)
        return events

    def perform(
        self, model: Any, name: str, given: Mapping[str, Any], *, stop: threading.Event | None = None
    ) -> Iterator[Any]:
        """As ``lab.perform``; a refusal comes with the first event."""
        events: Iterator[Any] = _ask("perform", model, _MOST_SECONDS, name, dict(given), stop=stop)
        return events

    def score(
        self, model: Any, ids: Sequence[int], cache: CacheConfig, *, stop: threading.Event | None = None,
        progress: Any = None, **others: Any,
    ) -> Any:  # fmt: skip
        """As ``engine.score``, without progress."""
        seconds = guess_seconds(2 * len(ids), 0)
        return next(iter(_ask("score", model, seconds, list(ids), cache, stop=stop, **others)))

    def exact_tile(self, model: Any, record: RunRecord, **named: Any) -> Any:
        """As ``engine.exact_tile``, without progress."""
        return self._replay("exact_tile", model, record, **named)

    def logit_map(self, model: Any, record: RunRecord, **named: Any) -> Any:
        """As ``engine.logit_map``, without progress."""
        return self._replay("logit_map", model, record, **named)

    def _replay(
        self, what: str, model: Any, record: RunRecord, *, stop: threading.Event | None = None,
        progress: Any = None, **named: Any,
    ) -> Any:  # fmt: skip
        light = replace(record, attention=None, tier_mass=[], received=[], head_summary=[])
        seconds = guess_seconds(record.rows, 0)
        return next(iter(_ask(what, model, seconds, light, stop=stop, **named)))


def workshop() -> Any:
    """``compare``, ``comparing``, ``score``, ``exact_tile``, ``logit_map``, ``experiments``, ``perform``, and
    a ``store`` of models: through :func:`on_gpu` on a ZeroGPU Space, else as they are."""
    if spaces is not None and os.environ.get("SPACES_ZERO_GPU"):
        lent = Lent()
        store = engine.ModelStore(on_cpu=True)
        names = ("compare", "comparing", "score", "exact_tile", "logit_map", "experiments", "perform")
        return SimpleNamespace(store=store, **{name: getattr(lent, name) for name in names})
    return SimpleNamespace(
        store=engine.ModelStore(),
        compare=engine.compare,
        comparing=engine.comparing,
        score=engine.score,
        exact_tile=engine.exact_tile,
        logit_map=engine.logit_map,
        experiments=lab.experiments,
        perform=lab.perform,
    )
