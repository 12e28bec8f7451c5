"""Sessions that keep more than a run needs, so that its errors can be measured while it is scored.

They change no number of the run. Know no experiment.
"""

from __future__ import annotations

from torch import Tensor

from kvviz.attention import RowRule, Tile, attend
from kvviz.cache import CacheSession
from kvviz.cache.buffer import TokenBuffer
from kvviz.cache.layer import ExactPart
from kvviz.lab.quant_bench import SIDES


class OutputSession(CacheSession):
    """Remembers each layer's attention output of the last step, ``(1, H, Q, D)``."""

    def reset(self) -> None:
        super().reset()
        self.outputs: dict[int, Tensor] = {}

    def attend(self, layer: int, query: Tensor, scale: float) -> Tensor:
        output = super().attend(layer, query, scale)
        self.outputs[layer] = output
        return output


class TwinSession(OutputSession):
    """Keeps exact keys and values beside the sealed ones, and reads both with the same queries."""

    def reset(self) -> None:
        super().reset()
        self.twins = [{side: TokenBuffer(self.device) for side in SIDES} for _ in range(self.n_layers)]
        self.exact_outputs: dict[int, Tensor] = {}

    def append(self, layer: int, keys: Tensor, values: Tensor) -> None:
        super().append(layer, keys, values)
        for side, fresh in zip(SIDES, (keys, values), strict=True):
            self.twins[layer][side].append(fresh)

    def attend(self, layer: int, query: Tensor, scale: float) -> Tensor:
        rows = range(self.seen_tokens, self.seen_tokens + query.shape[2])
        rule = RowRule.of([0] * len(rows), [row + 1 for row in rows], self.device)
        tile = Tile(0, *(self.twins[layer][side].view() for side in SIDES))
        self.exact_outputs[layer] = attend(query, [ExactPart(rule, None, tile)], scale).output
        return super().attend(layer, query, scale)

    def exact_sealed(self, layer: int, side: str) -> Tensor:
        """Exact values ``(1, H_kv, T, D)`` of all sealed tokens, as attention would meet them."""
        sealed = self.layers[layer].sealed
        return self.twins[layer][side].view(sealed.first, sealed.first + sealed.tokens)
