"""How well does a configuration predict a given text, against full precision on the same forced tokens?

Both read the text in the same chunks through the same code, so every difference is the cache's. Perplexity is
``exp(mean NLL)``; KL is the mean over rows of ``sum p_full (log p_full - log p_configuration)`` in nats.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kvviz.cache import CacheSession
from kvviz.config import CacheConfig, Middle, Prefill
from kvviz.engine.run import check_length
from kvviz.errors import ConfigError, KvvizError
from kvviz.events import MemorySnapshot, ModelFacts, SealError
from kvviz.models import LanguageModel
from kvviz.quant import Calibration

#: tokens read so far, tokens in all
Progress = Callable[[int, int], None]
#: called after each chunk with the sessions that read it: full precision's, the tested one
Watch = Callable[[CacheSession, CacheSession], None]


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """What one configuration scored; ``seconds`` is its own compute time, the reference's excluded."""

    ppl: float
    ppl_full: float
    kl: float
    top1: float
    rows: int
    tokens: int
    memory: MemorySnapshot
    seal_error: SealError
    seconds: float
    seconds_full: float
    model: ModelFacts
    config: CacheConfig
    chunk_size: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "ppl": self.ppl,
            "ppl_full": self.ppl_full,
            "kl": self.kl,
            "top1": self.top1,
            "rows": self.rows,
            "tokens": self.tokens,
            "bytes": self.memory.used,
            "bytes_reserved": self.memory.reserved,
            "bytes_total": self.memory.used_bytes,
            "bytes_full_16bit": round(self.model.kv_bytes_per_token(2) * self.tokens),
            "effective_bits": self.memory.effective_bits,
            "cache_bits": self.memory.cache_bits,
            "seconds": self.seconds,
            "seconds_full": self.seconds_full,
            "weights_hash": self.model.weights_hash,
            "model": self.model.name,
            "dtype": self.model.dtype,
            "device": self.model.device,
            "chunk": self.chunk_size,
            "config": self.config.to_dict(),
        }


class _Reader:
    """Feeds one session and times it."""

    def __init__(self, model: LanguageModel, session: CacheSession) -> None:
        self._model = model
        self.session = session
        self.seconds = 0.0

    def read(self, ids: Sequence[int]) -> Tensor:
        """Log-probabilities ``(Q, V)`` of the rows of ``ids``."""
        begin = time.perf_counter()
        logits = self._model.forward(list(ids), self.session, last_only=False)
        logprobs = torch.log_softmax(logits, dim=-1)
        self.seconds += time.perf_counter() - begin
        return logprobs


def score(
    model: LanguageModel,
    ids: Sequence[int],
    cache: CacheConfig,
    *,
    skip: int,
    chunk_size: int = 256,
    calibration: Calibration | None = None,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
) -> ScoreResult:
    """Score ``ids``: rows ``skip .. len(ids) - 2`` are counted, each predicting the token after it.

    With an exact prefill the first ``skip`` tokens are the prompt. ``calibration`` is what ``nuq`` and
    ``+static`` need.

    Raises:
        KvvizError: the slice is too short, longer than the context without eviction, or does not fit the
            model; or ``stop`` was set.
    """
    reading = scoring(model, ids, cache, skip=skip, chunk_size=chunk_size, calibration=calibration)
    with closing(reading):
        while True:
            try:
                read = next(reading)
            except StopIteration as finished:
                result: ScoreResult = finished.value
                return result
            if progress is not None and read:
                progress(read, len(ids))
            if stop is not None and stop.is_set() and read < len(ids):
                raise KvvizError("score_stopped", tokens=read)


def scoring(
    model: LanguageModel,
    ids: Sequence[int],
    cache: CacheConfig,
    *,
    skip: int,
    chunk_size: int = 256,
    calibration: Calibration | None = None,
    full_kind: type[CacheSession] = CacheSession,
    kind: type[CacheSession] = CacheSession,
    watch: Watch | None = None,
) -> Generator[int, None, ScoreResult]:
    """The same piece by piece: yields the tokens read so far, 0 first; its value is the result.

    ``full_kind`` and ``kind`` are sessions that keep more than they must; ``watch`` looks at both while
    their tensors exist.

    Raises:
        KvvizError: as :func:`score`, before anything is read.
    """
    if not 0 <= skip < len(ids) - 1:
        raise ConfigError("score_skip", skip=skip, tokens=len(ids))
    if chunk_size < 1:
        raise ConfigError("int_minimum", name="chunk", value=chunk_size, minimum=1)
    check_length(model, cache.middle is Middle.EVICT, len(ids), 0)
    full = _Reader(model, model.new_session(CacheConfig(), full_kind))
    tested = _Reader(model, model.new_session(cache, kind, calibration=calibration))
    sums = torch.zeros(4, dtype=torch.float64)  # NLL full, NLL tested, KL, agreements
    tested.session.begin_prompt()
    try:
        yield 0
        for start, stop_row in chunks_of(len(ids), chunk_size, skip if cache.prefill is Prefill.EXACT else 0):
            if start == skip:
                tested.session.end_prompt()
            chunk = ids[start:stop_row]
            reference, measured = full.read(chunk), tested.read(chunk)
            sums += row_sums(reference, measured, ids, start, skip)
            if watch is not None:
                watch(full.session, tested.session)
            yield stop_row
        memory, seal_error = tested.session.memory(), tested.session.seal_error()
    finally:
        full.session.reset()
        tested.session.reset()
    rows = len(ids) - 1 - skip
    nll_full, nll, kl, agreements = (sums / rows).tolist()
    return ScoreResult(
        ppl=math.exp(nll),
        ppl_full=math.exp(nll_full),
        kl=kl,
        top1=agreements,
        rows=rows,
        tokens=len(ids),
        memory=memory,
        seal_error=seal_error,
        seconds=tested.seconds,
        seconds_full=full.seconds,
        model=model.facts,
        config=cache,
        chunk_size=chunk_size,
    )


def chunks_of(tokens: int, chunk_size: int, prompt_tokens: int) -> Iterator[tuple[int, int]]:
    """Chunk edges; a chunk never straddles the end of an exact prompt."""
    start = 0
    while start < tokens:
        stop = min(start + chunk_size, tokens)
        if start < prompt_tokens < stop:
            stop = prompt_tokens
        yield start, stop
        start = stop


def row_sums(full: Tensor, tested: Tensor, ids: Sequence[int], start: int, skip: int) -> Tensor:
    """:func:`row_values` summed over the rows: ``(4,)``."""
    return row_values(full, tested, ids, start, skip).sum(-1)


def row_values(full: Tensor, tested: Tensor, ids: Sequence[int], start: int, skip: int) -> Tensor:
    """``(4, R)`` float64 on the host, of the counted rows (``skip .. len(ids) - 2``) in a chunk that begins
    at row ``start``: NLL of both, KL, 1 where the most likely tokens agree. Inputs are ``(Q, V)``."""
    first = max(0, skip - start)
    last = min(full.shape[0], len(ids) - 1 - start)
    if first >= last:
        return torch.zeros(4, 0, dtype=torch.float64)
    full, tested = full[first:last], tested[first:last]
    targets = torch.tensor(ids[start + first + 1 : start + last + 1], device=full.device)[:, None]
    kl = (full.exp() * (full - tested)).sum(-1)
    agree = full.argmax(-1) == tested.argmax(-1)
    columns = (-full.gather(1, targets)[:, 0], -tested.gather(1, targets)[:, 0], kl, agree)
    return torch.stack([column.double().cpu() for column in columns])
