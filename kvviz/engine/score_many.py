"""Several configurations on the same forced tokens, read in lockstep beside one full-precision reading.

Each chunk goes through full precision and then through every configuration, so no log-probabilities of a
whole text are kept. Rows, sums and definitions are those of :mod:`kvviz.engine.score`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kvviz.cache import CacheSession
from kvviz.comparison import Score, TextScore, WorstToken
from kvviz.config import CacheConfig, Prefill
from kvviz.engine.corpus import Corpus
from kvviz.engine.run import check_length
from kvviz.engine.score import chunks_of, row_values
from kvviz.errors import ConfigError
from kvviz.models import LanguageModel

MAX_WORST = 10
_BEFORE_TOKENS = 12
_DIGITS = 5  # of a nat, in what is kept row by row

#: tokens that went through the model since the last yield
Tokens = int


@dataclass
class _Reader:
    """One session, its time, and what it held of each counted row."""

    model: LanguageModel
    session: CacheSession
    seconds: float = 0.0
    choices: list[Tensor] = field(default_factory=list)
    columns: list[Tensor] = field(default_factory=list)  # (4, R) of row_values

    def read(self, ids: Sequence[int], rows: Sequence[int]) -> Tensor:
        """Log-probabilities ``(R, V)`` of ``rows`` of ``ids``; of one row when none count."""
        begin = time.perf_counter()
        logits = self.model.forward(list(ids), self.session, last_only=False, rows=rows or [0])
        logprobs = torch.log_softmax(logits, dim=-1)
        self.seconds += time.perf_counter() - begin
        if rows:
            self.choices.append(logprobs.argmax(-1).cpu())
        return logprobs


def text_ids(model: LanguageModel, corpus: Corpus, start: int, length: int) -> list[int]:
    """Token ids of a slice.

    Raises:
        ConfigError: the text is shorter, or the slice is longer than the model's context.
    """
    ids = model.encode(corpus.text, False)
    if start + length > len(ids):
        raise ConfigError("text_slice", start=start, stop=start + length, tokens=len(ids))
    check_length(model, False, length, 0)
    return ids[start : start + length]


def scoring_together(
    model: LanguageModel,
    corpus: Corpus,
    ids: Sequence[int],
    caches: Sequence[CacheConfig],
    *,
    skip: int,
    chunk_size: int = 256,
) -> Generator[Tokens, None, tuple[TextScore, list[Score]]]:
    """Yields after every reading; its value is what full precision and each configuration scored."""
    full = _Reader(model, model.new_session(CacheConfig()))
    tested = [_Reader(model, model.new_session(cache)) for cache in caches]
    exact = skip if any(cache.prefill is Prefill.EXACT for cache in caches) else 0
    for reader in tested:
        reader.session.begin_prompt()
    try:
        for start, stop in chunks_of(len(ids), chunk_size, exact):
            first = max(0, skip - start)
            rows = list(range(first, min(stop, len(ids) - 1) - start))
            chunk = ids[start:stop]
            reference = full.read(chunk, rows)
            yield len(chunk)
            for reader in tested:
                if start == skip:
                    reader.session.end_prompt()
                measured = reader.read(chunk, rows)
                if rows:
                    reader.columns.append(row_values(reference, measured, ids, start + rows[0], skip))
                yield len(chunk)
        memories = [reader.session.memory() for reader in tested]
    finally:
        for reader in (full, *tested):
            reader.session.reset()
    columns = [torch.cat(reader.columns, dim=1) for reader in tested]
    text = _text_score(corpus, ids, columns[0][0], full.seconds)
    scores = []
    for reader, (nll_full, nll, kl, agree), memory in zip(tested, columns, memories, strict=True):
        choices = (torch.cat(full.choices), torch.cat(reader.choices))
        scores.append(
            Score(
                ppl=math.exp(float(nll.mean())),
                kl=float(kl.mean()),
                top1=float(agree.mean()),
                nll=_rounded(nll),
                kl_rows=_rounded(kl),
                worst=_worst(model, ids, skip, (nll_full, nll, kl), choices),
                memory=memory,
                seconds=reader.seconds,
            )
        )
    return text, scores


def _text_score(corpus: Corpus, ids: Sequence[int], nll: Tensor, seconds: float) -> TextScore:
    return TextScore(
        name=corpus.name,
        sha256=corpus.sha256,
        tokens=len(ids),
        rows=len(nll),
        ppl=math.exp(float(nll.mean())),
        nll=_rounded(nll),
        seconds=seconds,
    )


def _rounded(values: Tensor) -> tuple[float, ...]:
    return tuple(round(x, _DIGITS) for x in values.tolist())


def _worst(
    model: LanguageModel,
    ids: Sequence[int],
    skip: int,
    columns: tuple[Tensor, Tensor, Tensor],
    choices: tuple[Tensor, Tensor],
) -> tuple[WorstToken, ...]:
    """The tokens that lost most nats against full precision, the worst first; none that lost nothing."""
    nll_full, nll, kl = columns
    lost = nll - nll_full
    places = [row for row in lost.argsort(descending=True).tolist()[:MAX_WORST] if lost[row] > 0]
    found = []
    for row in places:
        position = skip + row + 1
        said_full, said = (model.labels([int(c[row])], at_start=False)[0].display for c in choices)
        found.append(
            WorstToken(
                position=position,
                token=model.labels([ids[position]], at_start=False)[0].display,
                before=model.decode(ids[max(0, position - _BEFORE_TOKENS) : position]),
                nll_full=round(float(nll_full[row]), _DIGITS),
                nll=round(float(nll[row]), _DIGITS),
                kl=round(float(kl[row]), _DIGITS),
                choice_full=said_full,
                choice=said,
            )
        )
    return tuple(found)
