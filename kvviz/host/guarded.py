"""What uses a model, behind :class:`Hosting`: each has the signature of what it guards, so that whoever is
handed one need not know. Knows requests; knows no engine and no page.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, cast

from kvviz.comparison import Comparison, ScoreProgress
from kvviz.comparison_request import ComparisonRequest
from kvviz.config import CacheConfig, RunConfig
from kvviz.errors import KvvizError
from kvviz.events import Event, ModelFacts
from kvviz.experiment import ExperimentInfo, LabProgress, LabResult
from kvviz.host.hosting import Hosting
from kvviz.host.memory import Need, cache_need, logits_need, run_need
from kvviz.record import RunRecord

Progress = Callable[[int, int], None]
#: Full-precision caches that an experiment's memory is taken for. Measured on the default model: up to 14.
_LAB_COPIES = 16


def _run_needs(hosting: Hosting, model: Any, configs: Sequence[RunConfig]) -> list[Need]:
    """Bytes of each run, once it is within the limits."""
    hosting.limits.check_request(configs)
    needs = []
    for config in configs:
        prompt_tokens = len(model.encode(config.prompt, config.use_chat_template))
        hosting.limits.check_tokens(prompt_tokens, config.max_new_tokens)
        needs.append(run_need(model.facts, config.cache, prompt_tokens, config.max_new_tokens))
    return needs


def _score_need(facts: ModelFacts, caches: Sequence[CacheConfig], tokens: int) -> Need:
    """Full precision and every configuration read the same text together."""
    needs = [cache_need(facts, cache, tokens) for cache in (CacheConfig(), *caches)]
    return sum(needs, logits_need(facts))


class HostedCompare:
    """The engine's generation (of one configuration or of several)."""

    def __init__(self, hosting: Hosting, compare: Callable[..., Iterator[Event]]) -> None:
        self._hosting, self._compare = hosting, compare

    def __call__(
        self, model: Any, configs: Sequence[RunConfig], *, stop: threading.Event | None = None, **others: Any
    ) -> Iterator[Event]:
        """The events, once it is their turn.

        Raises:
            KvvizError: refused by the engine or by a limit, before the first event; with the first event,
                when the line is full or the memory is not there; after the last, when the time was up.
        """
        stop = stop or threading.Event()
        needs = _run_needs(self._hosting, model, configs)
        events = self._compare(model, configs, stop=stop, **others)
        seconds = self._hosting.limits.max_run_seconds
        return self._hosting.in_turn("run", model.facts, events, needs, stop=stop, most_seconds=seconds)


class HostedComparing:
    """The engine's whole comparison: generation, then scoring."""

    def __init__(
        self, hosting: Hosting, comparing: Callable[..., Iterator[Event | ScoreProgress | Comparison]]
    ) -> None:
        self._hosting, self._comparing = hosting, comparing

    def __call__(
        self, model: Any, request: ComparisonRequest, *, stop: threading.Event | None = None, **others: Any
    ) -> Iterator[Event | ScoreProgress | Comparison]:
        """As the engine's; a comparison has an experiment's time.

        Raises:
            KvvizError: as :class:`HostedCompare`.
        """
        stop = stop or threading.Event()
        need = sum(_run_needs(self._hosting, model, request.runs), Need())
        if request.text is not None:
            self._hosting.limits.check_count("context_tokens", request.text.length)
            caches = [cache for _, cache in request.configurations]
            need = need.or_more(_score_need(model.facts, caches, request.text.length))
        events = self._comparing(model, request, stop=stop, **others)
        seconds = self._hosting.limits.max_lab_seconds
        return self._hosting.in_turn("compare", model.facts, events, [need], stop=stop, most_seconds=seconds)


class HostedScore:
    """The engine's score of one configuration."""

    def __init__(self, hosting: Hosting, score: Callable[..., Any]) -> None:
        self._hosting, self._score = hosting, score

    def __call__(
        self, model: Any, ids: Sequence[int], cache: CacheConfig, *,
        stop: threading.Event | None = None, progress: Progress | None = None, **others: Any,
    ) -> Any:  # fmt: skip
        """As the engine's.

        Raises:
            KvvizError: as :class:`HostedCompare`, or that ``stop`` was set.
        """
        stop = stop or threading.Event()
        self._hosting.limits.check_count("context_tokens", len(ids))
        need = _score_need(model.facts, [cache], len(ids))
        seconds = self._hosting.limits.max_run_seconds
        with self._hosting.hold("score", model.facts, [need], stop=stop, most_seconds=seconds) as held:
            if held is None:
                raise KvvizError("score_stopped", tokens=0)

            def told(done: int, total: int) -> None:
                if done < total:
                    held.check()
                if progress is not None:
                    progress(done, total)

            return self._score(model, ids, cache, stop=stop, progress=told, **others)


class HostedLab:
    """The laboratory. An experiment may keep what it reads of every layer: caches, states, outputs."""

    def __init__(self, hosting: Hosting, lab: Any) -> None:
        self._hosting, self._lab = hosting, lab

    def experiments(self) -> list[ExperimentInfo]:
        """What can be asked."""
        found: list[ExperimentInfo] = self._lab.experiments()
        return found

    def perform(
        self, model: Any, name: str, given: Mapping[str, Any], *, stop: threading.Event | None = None
    ) -> Iterator[LabProgress | LabResult]:
        """Progress and the result, once it is its turn.

        Raises:
            KvvizError: as :class:`HostedCompare`.
        """
        stop = stop or threading.Event()
        work = self._lab.perform(model, name, given, stop=stop)
        info = next(info for info in self.experiments() if info.name == name)
        tokens = info.held_tokens(info.settings(given))
        self._hosting.limits.check_count("context_tokens", tokens)
        full = [cache_need(model.facts, CacheConfig(), tokens)] * _LAB_COPIES
        return self._in_turn(model.facts, work, [*full, logits_need(model.facts)], stop)

    def _in_turn(
        self, facts: ModelFacts, work: Iterator[Any], needs: Sequence[Need], stop: threading.Event
    ) -> Iterator[LabProgress | LabResult]:
        limits = self._hosting.limits
        with (
            closing(cast(Any, work)),
            self._hosting.hold("lab", facts, needs, stop=stop, most_seconds=limits.max_lab_seconds) as held,
        ):
            if held is None:
                raise KvvizError("lab_stopped")
            for event in work:
                if isinstance(event, LabProgress):
                    limits.check_count("lab_tokens", event.total)
                yield event
                if isinstance(event, LabProgress):
                    held.check()


class HostedRecompute:
    """The engine's recomputations, guarded."""

    def __init__(self, hosting: Hosting, engine: Any) -> None:
        self._hosting, self._engine = hosting, engine

    def exact_tile(
        self, model: Any, record: RunRecord, *, layer: int, rows: tuple[int, int], columns: tuple[int, int],
        stop: threading.Event | None = None, progress: Progress | None = None,
    ) -> Any:  # fmt: skip
        """As the engine's."""
        given = {"layer": layer, "rows": rows, "columns": columns}
        return self._hold(self._engine.exact_tile, model, record, given, stop, progress)

    def logit_map(
        self, model: Any, record: RunRecord, *, layer: int,
        stop: threading.Event | None = None, progress: Progress | None = None,
    ) -> Any:  # fmt: skip
        """As the engine's."""
        return self._hold(self._engine.logit_map, model, record, {"layer": layer}, stop, progress)

    def _hold(
        self, work: Callable[..., Any], model: Any, record: RunRecord, given: dict[str, Any],
        stop: threading.Event | None, progress: Progress | None,
    ) -> Any:  # fmt: skip
        stop = stop or threading.Event()
        cache = CacheConfig.from_dict(record.config["cache"])
        need = cache_need(model.facts, cache, len(record.token_ids))
        seconds = self._hosting.limits.max_run_seconds
        with self._hosting.hold("recompute", model.facts, [need], stop=stop, most_seconds=seconds) as held:
            if held is None:
                raise KvvizError("replay_stopped", tokens=0)

            def told(done: int, total: int) -> None:
                held.check()
                if progress is not None:
                    progress(done, total)

            return work(model, record, **given, stop=stop, progress=told)
