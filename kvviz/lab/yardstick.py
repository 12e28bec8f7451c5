"""One text in full precision, kept as a measure: caches are scored against it, each in one pass.

The log-probabilities of the counted rows stay in memory, 4 bytes a number (8 in double precision): 1,535 rows
of 49,152 tokens take 302 MB. Rows, sums and chunks are those of :func:`kvviz.engine.score`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kvviz.cache.calibrate import calibration_of
from kvviz.config import CacheConfig
from kvviz.engine import LanguageModel
from kvviz.engine.score import row_sums
from kvviz.errors import ConfigError
from kvviz.events import MemorySnapshot, SealError
from kvviz.lab.bench import CHUNK_SIZE, Bench, Tokens
from kvviz.lab.quant_bench import check_text, read_exactly
from kvviz.quant import Calibration


@dataclass(frozen=True, slots=True)
class Measured:
    """One cache against full precision. ``logit_error`` is the standard deviation over the vocabulary of what
    the logits differ by (a shift of all of them means nothing), root mean square over the rows."""

    cache: CacheConfig
    ppl: float
    ppl_full: float
    kl: float
    top1: float
    logit_error: float
    memory: MemorySnapshot
    seal_error: SealError

    @property
    def bits(self) -> float | None:
        """Stored bits of the sealed keys and values per number."""
        return self.memory.effective_bits

    @property
    def ppl_change(self) -> float:
        """Perplexity over that of full precision, less 1."""
        return self.ppl / self.ppl_full - 1

    def side_error(self, side: str, layer: int | None = None) -> float | None:
        """Relative error of everything that one side ("key" or "value") sealed, or of one layer of it;
        None without any."""
        layers = slice(None) if layer is None else layer
        signal, error = (
            float(np.sum(getattr(self.seal_error, f"{side}_{kind}")[layers])) for kind in ("signal", "error")
        )
        return math.sqrt(error / signal) if signal else None


class Yardstick:
    """``ids`` in full precision: rows ``skip .. len(ids) - 2`` count, each predicting the token after it."""

    def __init__(self, model: LanguageModel, ids: Sequence[int], skip: int) -> None:
        self.model, self.ids, self.skip = model, list(ids), skip
        self._chunks: dict[int, Tensor] = {}  # first row of a chunk -> log-probabilities (Q, V)

    @staticmethod
    def check_rows(length: int, skip: int) -> None:
        """Refuse a text of which no row counts.

        Raises:
            ConfigError: ``skip`` is too large.
        """
        if skip >= length - 1:
            raise ConfigError("score_skip", skip=skip, tokens=length)

    def read(self) -> Generator[Tokens, None, None]:
        """Read the text in full precision, once, before anything is measured."""
        session = self.model.new_session(CacheConfig())
        try:
            for start, chunk, rows in self._pieces():
                logits = self.model.forward(chunk, session, last_only=False, rows=rows)
                if rows:
                    self._chunks[start + rows[0]] = torch.log_softmax(logits, dim=-1)
                yield len(chunk)
        finally:
            session.reset()

    def _pieces(self) -> Generator[tuple[int, list[int], list[int]], None, None]:
        """First row, ids, and which of the rows count (from 0), of every chunk."""
        for start in range(0, len(self.ids), CHUNK_SIZE):
            chunk = self.ids[start : start + CHUNK_SIZE]
            first, last = max(0, self.skip - start), min(len(chunk), len(self.ids) - 1 - start)
            yield start, chunk, list(range(first, last))

    def measure(
        self, cache: CacheConfig, calibration: Calibration | None = None
    ) -> Generator[Tokens, None, Measured]:
        """Read the text through ``cache``."""
        session = self.model.new_session(cache, calibration=calibration)
        sums = torch.zeros(4, dtype=torch.float64)
        squares = 0.0
        try:
            for start, chunk, rows in self._pieces():
                logits = self.model.forward(chunk, session, last_only=False, rows=rows or [0])
                if rows:
                    full, tested = self._chunks[start + rows[0]], torch.log_softmax(logits, dim=-1)
                    sums += row_sums(full, tested, self.ids, start + rows[0], self.skip)
                    squares += float((tested - full).var(-1, correction=0).double().sum())
                yield len(chunk)
            memory, seal_error = session.memory(), session.seal_error()
        finally:
            session.reset()
        counted = len(self.ids) - 1 - self.skip
        nll_full, nll, kl, top1 = (sums / counted).tolist()
        logit_error = math.sqrt(squares / counted)
        return Measured(cache, math.exp(nll), math.exp(nll_full), kl, top1, logit_error, memory, seal_error)


def learn(
    bench: Bench, caches: Sequence[CacheConfig], tokens: int
) -> Generator[Tokens, None, dict[CacheConfig, Calibration]]:
    """Calibrations of those ``caches`` that need one, from the corpus's first ``tokens`` tokens, read once in
    full precision."""
    needing = [cache for cache in caches if needs_calibration(cache)]
    if not needing:
        return {}
    session = yield from read_exactly(bench, bench.text(0, tokens))
    try:
        return {cache: calibration_of(session, cache) for cache in needing}
    finally:
        session.reset()


def check_scoring(bench: Bench, start: int, length: int, skip: int, cache: CacheConfig) -> None:
    """Refuse a text of which no counted row sees a sealed block of ``cache``, and one that the corpus or the
    model has no room for.

    Raises:
        ConfigError: says which.
    """
    Yardstick.check_rows(length, skip)
    least = cache.sink_size + cache.window_size + cache.block_size + 1
    if length < least:
        raise ConfigError("lab_no_sealed_row", tokens=length, least=least)
    check_text(bench, start, length, CacheConfig())


def needs_calibration(cache: CacheConfig) -> bool:
    """True when one of the quantizers must have read a text before."""
    return cache.key.needs_calibration or cache.value.needs_calibration
