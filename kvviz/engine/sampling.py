"""One row of logits to one token: greedy, or seeded nucleus sampling. Knows no model."""

from __future__ import annotations

import torch
from torch import Tensor

from kvviz.config import SamplingConfig


class Sampler:
    """Chooses tokens; two samplers with the same seed choose alike from the same logits."""

    def __init__(self, config: SamplingConfig) -> None:
        self.config = config
        self._generator = torch.Generator().manual_seed(config.seed)

    def choose(self, logits: Tensor) -> tuple[int, float]:
        """``(V,)`` logits -> token id and its log-probability (nats) in the model's own distribution."""
        logits = logits.detach().cpu()
        logprobs = torch.log_softmax(logits, dim=-1)
        token = int(logits.argmax()) if self.config.temperature == 0 else self._draw(logits)
        return token, float(logprobs[token])

    def _draw(self, logits: Tensor) -> int:
        probabilities = torch.softmax(logits / self.config.temperature, dim=-1)
        if self.config.top_p < 1:
            ordered, order = probabilities.sort(descending=True)
            before = ordered.cumsum(0) - ordered
            ordered = ordered.masked_fill(before >= self.config.top_p, 0)  # the first token always stays
            probabilities = torch.zeros_like(probabilities).scatter(0, order, ordered)
        return int(torch.multinomial(probabilities, 1, generator=self._generator))
