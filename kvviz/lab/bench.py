"""What every experiment stands on: a model, a text, and reading tokens through a cache piece by piece.

Knows no experiment. Reading is a generator that yields after every piece, so that whoever drives it can stop
it, tell how far it is, and guess how long it will take.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kvviz.cache import CacheSession
from kvviz.engine import Corpus, LanguageModel, load_text
from kvviz.errors import ConfigError
from kvviz.experiment import ExperimentInfo, LabResult
from kvviz.models.hidden import HiddenTaker

CHUNK_SIZE = 256

#: tokens that went through the model since the last yield
Tokens = int
#: what an experiment is while it runs: yields tokens read, returns its result
Experimenting: TypeAlias = Generator[Tokens, None, LabResult]


def _anything_goes(bench: Bench, settings: dict[str, Any]) -> None:
    """The check of an experiment whose controls already say all."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One file of this room: what it offers, how many tokens it will read, and how it is done.

    ``check`` refuses, before anything is read, settings that contradict each other or the model.
    """

    info: ExperimentInfo
    work: Callable[[dict[str, Any]], int]  # settings -> tokens in all, for progress
    run: Callable[[Bench, dict[str, Any]], Experimenting]
    check: Callable[[Bench, dict[str, Any]], None] = _anything_goes


class Bench:
    """A model and the corpus, cut into tokens once."""

    def __init__(self, model: LanguageModel, corpus: Corpus | None = None) -> None:
        self.model = model
        self.corpus = corpus or load_text("pydoc-topics")
        self._ids: list[int] | None = None

    def text(self, start: int, tokens: int) -> list[int]:
        """Token ids ``[start, start + tokens)`` of the corpus.

        Raises:
            ConfigError: the corpus is shorter.
        """
        if self._ids is None:
            self._ids = self.model.encode(self.corpus.text, False)
        if start + tokens > len(self._ids):
            raise ConfigError("text_slice", start=start, stop=start + tokens, tokens=len(self._ids))
        return self._ids[start : start + tokens]

    def slices(self, count: int, tokens: int) -> list[list[int]]:
        """``count`` texts of ``tokens`` ids, evenly spread over the corpus from its first token to its last.

        Raises:
            ConfigError: the corpus is shorter than one of them.
        """
        self.text(0, tokens)
        assert self._ids is not None
        room = len(self._ids) - tokens
        return [self.text(room * i // max(1, count - 1), tokens) for i in range(count)]

    def read(
        self,
        ids: Sequence[int],
        session: CacheSession,
        take: Callable[[int, Tensor], None] | None = None,
        *,
        chunk_size: int = CHUNK_SIZE,
        hidden: HiddenTaker | None = None,
    ) -> Generator[Tokens, None, None]:
        """Feed ``ids`` through ``session``. ``take(first_row, logits (Q, V))`` gets each chunk's logits;
        without it only the last row's are computed. ``hidden(layer, (1, Q, E))`` sees each chunk's residual
        stream after each layer."""
        for start in range(0, len(ids), chunk_size):
            chunk = ids[start : start + chunk_size]
            logits = self.model.forward(chunk, session, last_only=take is None, hidden=hidden)
            if take is not None:
                take(start, logits)
            yield len(chunk)


def nll_of_next(logits: Tensor, ids: Sequence[int], first_row: int) -> Tensor:
    """Negative log-likelihood (nats) of each row's next token, ``(Q,)``; the text's last row has none."""
    rows = min(logits.shape[0], len(ids) - 1 - first_row)
    return nll_of_sample(logits[:rows], ids, range(first_row, first_row + rows))


def nll_of_sample(logits: Tensor, ids: Sequence[int], rows: Sequence[int]) -> Tensor:
    """Negative log-likelihood (nats) of the token after each of ``rows``, ``(R,)``, by ``logits (R, V)``."""
    targets = torch.tensor([ids[row + 1] for row in rows], device=logits.device, dtype=torch.int64)
    return torch.nn.functional.cross_entropy(logits, targets, reduction="none")


def rolling_mean(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """``(..., T)``: at each place the mean of its value and of those before it, ``most`` values at most."""
    total = np.cumsum(values, axis=-1)
    summed = total.copy()
    summed[..., most:] -= total[..., :-most]
    mean: NDArray[np.float64] = summed / np.minimum(np.arange(1, values.shape[-1] + 1), most)
    return mean
