"""One generation: a prompt through a model and a cache, told as events.

Knows no page and no drawing. Whatever happens, the last event says how it ended, and the cache is freed.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Generator, Iterator
from statistics import median

from torch import Tensor

from kvviz.cache import CacheSession
from kvviz.catalogue import text
from kvviz.config import Middle, RunConfig
from kvviz.engine.capture import Capture
from kvviz.engine.grid import CellMap
from kvviz.engine.sampling import Sampler
from kvviz.errors import ConfigError, KvvizError
from kvviz.events import (
    Event,
    PrefillProgress,
    RunFailed,
    RunFinished,
    RunStarted,
    StepState,
    TokenGenerated,
)
from kvviz.models import ByteStreamer, LanguageModel

logger = logging.getLogger(__name__)


def check_request(model: LanguageModel, config: RunConfig) -> list[int]:
    """Everything that can be refused before anything runs; returns the prompt's token ids.

    Raises:
        KvvizError: an empty prompt, settings that do not fit the model, or more tokens than its context.
    """
    ids = model.encode(config.prompt, config.use_chat_template)
    facts, cache = model.facts, config.cache
    model.check(cache)
    check_length(model, cache.middle is Middle.EVICT, len(ids), config.max_new_tokens)
    if cache.middle is Middle.EVICT and cache.sink_size + cache.window_size > facts.context_tokens:
        held = cache.sink_size + cache.window_size
        raise ConfigError("window_context", held=held, context=facts.context_tokens)
    return ids


def check_length(model: LanguageModel, evicts: bool, prompt_tokens: int, new_tokens: int) -> None:
    """Refuse what is longer than the model's context, unless eviction keeps the cache short."""
    context = model.facts.context_tokens
    if not evicts and prompt_tokens + new_tokens > context:
        raise ConfigError(
            "context_exceeded", prompt_tokens=prompt_tokens, new_tokens=new_tokens, context=context
        )


def run(
    model: LanguageModel,
    config: RunConfig,
    *,
    index: int = 0,
    stop: threading.Event | None = None,
    capture_attention: bool = True,
    map_sinks: int | None = None,
) -> Iterator[Event]:
    """Generate and tell. ``index`` tags the events; ``stop`` ends the run before its next forward pass;
    the first ``map_sinks`` tokens (by default the cache's sinks) have cells of their own in the map.

    Raises:
        KvvizError: before the first event, when the request itself is refused. Later failures are events.
    """
    ids = check_request(model, config)
    sinks = config.cache.sink_size if map_sinks is None else map_sinks
    cells = CellMap.of(len(ids) + config.max_new_tokens, sinks, config.max_new_tokens)
    return _Run(model, config, ids, index, stop or threading.Event(), capture_attention, cells).events()


class _Run:
    """The state of one generation between events."""

    def __init__(
        self,
        model: LanguageModel,
        config: RunConfig,
        prompt_ids: list[int],
        index: int,
        stop: threading.Event,
        capture_attention: bool,
        cells: CellMap,
    ) -> None:
        self._model, self._config, self._prompt_ids = model, config, prompt_ids
        self._index, self._stop = index, stop
        facts = model.facts
        self._cells = cells
        self._capture = Capture(
            n_layers=facts.n_layers, n_heads=facts.n_heads, cells=self._cells, maps=capture_attention
        )
        self._streamer = ByteStreamer(model)
        self._sampler = Sampler(config.sampling)
        self._step_ms: list[float] = []

    def events(self) -> Iterator[Event]:
        yield self._started()
        session: CacheSession | None = None
        try:
            session = self._model.new_session(self._config.cache)
            session.observer = self._capture
            session.timeline.enabled = not self._config.cache.offload.is_none
            reason = yield from self._generate(session)
            yield self._finished(reason)
        except KvvizError as error:
            yield RunFailed(self._index, str(error))
        except Exception as error:
            logger.exception("run failed")
            yield RunFailed(self._index, text("engine.failed", kind=type(error).__name__, detail=error))
        finally:
            if session is not None:
                session.observer = None
                session.reset()

    def _generate(self, session: CacheSession) -> Generator[Event, None, str]:
        """Events of the prompt and of each token; returns why it ended."""
        begin = time.perf_counter()
        logits: Tensor | None = None
        session.begin_prompt()
        paused = 0.0
        for done in range(0, len(self._prompt_ids), self._config.chunk_size):
            if self._stop.is_set():
                return "stopped"
            chunk = self._prompt_ids[done : done + self._config.chunk_size]
            logits = self._model.forward(chunk, session, last_only=True)
            told = time.perf_counter()
            yield from self._told_rows()
            yield PrefillProgress(self._index, done + len(chunk), len(self._prompt_ids))
            paused += time.perf_counter() - told
        session.end_prompt()
        assert logits is not None
        for step in range(self._config.max_new_tokens):
            token, logprob = self._sampler.choose(logits[-1])
            step_ms = 1000 * (time.perf_counter() - begin - paused)
            yield self._chosen(step, token, logprob, step_ms, session)
            if token in self._model.eos_ids:
                return "eos"
            if step + 1 == self._config.max_new_tokens:
                return "length"
            if self._stop.is_set():
                return "stopped"
            begin, paused = time.perf_counter(), 0.0
            logits = self._model.forward([token], session, last_only=True)
            told = time.perf_counter()
            yield from self._told_rows()
            paused = time.perf_counter() - told
        return "length"

    def _started(self) -> RunStarted:
        return RunStarted(
            run=self._index,
            run_id=uuid.uuid4().hex,
            config=self._config.to_dict(),
            model=self._model.facts,
            prompt_ids=tuple(self._prompt_ids),
            prompt_labels=tuple(self._model.labels(self._prompt_ids)),
            grid=self._cells.grid(),
        )

    def _told_rows(self) -> Iterator[Event]:
        rows = self._capture.rows(self._index)
        if rows is not None:
            yield rows

    def _chosen(
        self, step: int, token: int, logprob: float, step_ms: float, session: CacheSession
    ) -> TokenGenerated:
        self._step_ms.append(step_ms)
        return TokenGenerated(
            run=self._index,
            step=step,
            token_id=token,
            label=self._model.labels([token], at_start=False)[0],
            text_delta=self._streamer.push(token),
            logprob=logprob,
            step_ms=step_ms,
            state=StepState(
                spans=session.spans(),
                memory=session.memory(),
                tier_mass=self._capture.tier_mass,
                received=self._capture.received,
                head_summary=self._capture.head_summary,
                seal_error=session.seal_error(),
                timeline=session.take_timeline(),
            ),
        )

    def _finished(self, reason: str) -> RunFinished:
        ttft_ms = self._step_ms[0] if self._step_ms else None
        tpot_ms = median(self._step_ms[1:]) if len(self._step_ms) > 1 else None
        return RunFinished(self._index, reason, self._streamer.flush(), ttft_ms, tpot_ms)
