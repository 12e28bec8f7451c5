"""Attention over parts: each part gives an output and a log-sum-exp, and the merge is exact.

``L = logsumexp(l_p)``, ``o = sum exp(l_p - L) o_p`` (the merge of arXiv:2205.14135 and its successors). The
shares ``exp(l_p - L)`` say, for free, how much of a row's attention each part received. This module knows
neither a cache nor a quantizer: a part is positions, a row rule, and tiles of keys and values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

NEG_INF = float("-inf")


class Tile(NamedTuple):
    """Consecutive tokens from position ``start``: ``keys`` and ``values`` are ``(B, H_kv, t, D)``."""

    start: int
    keys: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class RowRule:
    """Row ``r`` sees positions ``low[r] <= p < high[r]``; tensors are ``(Q,)`` int64.

    ``all_from``/``all_to`` bound the positions that *every* row sees: a tile inside needs no mask.
    """

    low: Tensor
    high: Tensor
    all_from: int
    all_to: int

    @classmethod
    def of(cls, low: list[int], high: list[int], device: torch.device) -> RowRule:
        """From one pair of bounds a row."""
        bounds = torch.tensor([low, high], device=device)
        return cls(bounds[0], bounds[1], max(low), min(high))

    def hidden(self, start: int, stop: int) -> Tensor | None:
        """``(Q, stop - start)`` True where a row must not look, or None when every row sees all."""
        if self.all_from <= start and stop <= self.all_to:
            return None
        positions = torch.arange(start, stop, device=self.low.device)
        return (positions < self.low[:, None]) | (positions >= self.high[:, None])


class Part(Protocol):
    """Some consecutive positions that live in one place."""

    @property
    def rows(self) -> RowRule: ...

    @property
    def query(self) -> Tensor | None:
        """The query that meets this part, when it is not the row's own (``in_cache`` positions)."""
        ...

    def tiles(self) -> Iterable[Tile]: ...


@dataclass(slots=True)
class Attention:
    """What the rows read.

    ``output``: ``(B, H, Q, D)``. ``lse``: ``(B, H, Q)``. ``part_lse``: one ``(B, H, Q)`` for each part,
    ``-inf`` where a row sees nothing of it. ``scores``: ``(start, (B, H, Q, t))`` of each tile, only when
    they were asked for; ``exp(score - lse)`` is the attention probability.
    """

    output: Tensor
    lse: Tensor
    part_lse: list[Tensor]
    scores: list[tuple[int, Tensor]] = field(default_factory=list)

    def mass(self) -> Tensor:
        """``(P, B, H, Q)``: the share of each part; sums to 1 over parts."""
        return torch.stack([torch.exp(lse - self.lse) for lse in self.part_lse])

    def weights(self) -> Iterator[tuple[int, Tensor]]:
        """``(start, (B, H, Q, t))`` attention probabilities, tile by tile; a row sums to 1.

        A log-sum-exp of 30 is off by 1e-6 in fp32, and so would be every row's sum: the rows are normalised.
        """
        lse = self.lse.unsqueeze(-1)
        total = torch.zeros_like(lse)
        for _, scores in self.scores:
            total += torch.exp(scores - lse).sum(-1, keepdim=True)
        for start, scores in self.scores:
            yield start, torch.exp(scores - lse) / total


def attend(query: Tensor, parts: list[Part], scale: float, *, keep_scores: bool = False) -> Attention:
    """Attention of ``query (B, H, Q, D)`` over non-empty ``parts``; every row must see something.

    Scores, softmax and log-sum-exp are fp32 (fp64 for fp64 queries). Query heads share their KV head by a
    reshape of the query: keys are never copied. Keeping the scores changes no number of the output.
    """
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    batch, heads, rows, head_dim = query.shape
    reads: list[tuple[Tensor, Tensor]] = []  # output and log-sum-exp of every tile
    part_lse: list[Tensor] = []
    kept: list[tuple[int, Tensor]] = []
    for part in parts:
        own = query if part.query is None else part.query
        own = own.to(wide) * scale
        first = len(reads)
        for tile in part.tiles():
            scores = _scores(own, tile.keys.to(wide), part.rows, tile.start)
            if keep_scores:
                kept.append((tile.start, scores.view(batch, heads, rows, -1)))
            reads.append(_softmax_read(scores, tile.values.to(wide)))
        part_lse.append(torch.logsumexp(torch.stack([lse for _, lse in reads[first:]]), 0))
    output, total = _merge(reads)
    return Attention(
        output.view(batch, heads, rows, head_dim).to(query.dtype),
        total.view(batch, heads, rows),
        [lse.view(batch, heads, rows) for lse in part_lse],
        kept,
    )


def _scores(query: Tensor, keys: Tensor, rule: RowRule, start: int) -> Tensor:
    """``(B, H, Q, D)`` against ``(B, H_kv, t, D)`` -> masked ``(B, H_kv, G, Q, t)``."""
    batch, _, rows, head_dim = query.shape
    kv_heads, tokens = keys.shape[1], keys.shape[2]
    grouped = query.reshape(batch, kv_heads, -1, head_dim)  # query head h reads KV head h // G
    scores = torch.matmul(grouped, keys.transpose(-1, -2)).view(batch, kv_heads, -1, rows, tokens)
    hidden = rule.hidden(start, start + tokens)
    return scores if hidden is None else scores.masked_fill(hidden, NEG_INF)


def _softmax_read(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Normalised output ``(B, H_kv, G, Q, D)`` and log-sum-exp ``(B, H_kv, G, Q)`` of one tile."""
    peak = scores.amax(-1, keepdim=True)
    peak = peak.masked_fill(peak == NEG_INF, 0.0)  # a row that sees nothing here: exp(-inf - 0) = 0
    weights = torch.exp(scores - peak)
    total = weights.sum(-1, keepdim=True)
    output = torch.matmul(weights.flatten(2, 3), values).view(*scores.shape[:-1], -1)
    output = output / total.clamp_min(torch.finfo(total.dtype).tiny)
    return output, (peak + total.log()).squeeze(-1)


def _merge(reads: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The exact merge of outputs by their log-sum-exps; every row sees something, so the total is finite."""
    if not reads:
        raise ValueError("attention over no parts")
    lse = torch.stack([tile_lse for _, tile_lse in reads])
    total = torch.logsumexp(lse, 0)
    shares = torch.exp(lse - total).unsqueeze(-1)
    return (torch.stack([output for output, _ in reads]) * shares).sum(0), total
