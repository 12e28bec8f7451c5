"""Attention over parts, tile by tile: each part gives an output and a log-sum-exp, and the merge is exact.

``L = logsumexp(l_p)``, ``o = sum exp(l_p - L) o_p`` (the merge of arXiv:2205.14135 and its successors). The
shares ``exp(l_p - L)`` say, for free, how much of a row's attention each part received. This module knows
neither a cache nor a quantizer: a part is positions, a row rule, and tiles of keys and values. :func:`attend`
is the plain way, right everywhere, and the oracle of the fast ways in ``fast.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from kvviz.attention.stored import Stored

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

    def is_causal(self, start: int, stop: int) -> bool:
        """True where the rows are the newest tokens before ``stop`` and each sees of them, from ``start`` on,
        itself and all before it. Of older tokens it says nothing."""
        first = stop - len(self.high)
        if self.all_from > max(start, first):
            return False
        own = torch.arange(first + 1, stop + 1, device=self.high.device)
        return torch.equal(self.high.clamp(min=start), own.clamp(min=start))


class Part(Protocol):
    """Some consecutive positions that live in one place."""

    @property
    def rows(self) -> RowRule: ...

    @property
    def query(self) -> Tensor | None:
        """The query that meets this part, when it is not the row's own (``in_cache`` positions)."""
        ...

    def tiles(self) -> Iterable[Tile]: ...

    def stored(self) -> Stored | None:
        """All of it as it lies in memory, for a kernel that can read it so; None when nothing can."""
        ...


class Kept(NamedTuple):
    """A tile as :func:`softmax` left it, heads flat: see :meth:`Attention.tiles`."""

    start: int
    scores: Tensor
    weights: Tensor
    peak: Tensor
    total: Tensor


class ReadTile(NamedTuple):
    """What the rows read of the tokens from position ``start``, as the softmax had it in its hands.

    ``scores``, ``(B, H, Q, t)``, are ``q . k / sqrt(D)``, ``-inf`` where a row does not look. ``weights``,
    ``(B, H, Q, t)``, are ``exp(scores - peak)``; times ``factor (B, H, Q, 1)`` they are probabilities.
    """

    start: int
    scores: Tensor
    weights: Tensor
    factor: Tensor


@dataclass(slots=True)
class Attention:
    """What the rows read.

    ``output``: ``(B, H, Q, D)``. ``lse``: ``(B, H, Q)``. ``part_lse``: one ``(B, H, Q)`` for each part,
    ``-inf`` where a row sees nothing of it. ``kept``: what was computed of each tile, only when it was
    asked for; :meth:`tiles` and :meth:`weights` make probabilities of it.
    """

    output: Tensor
    lse: Tensor
    part_lse: list[Tensor]
    kept: list[Kept] = field(default_factory=list)

    def mass(self) -> Tensor:
        """``(P, B, H, Q)``: the share of each part; sums to 1 over parts."""
        return torch.stack([torch.exp(lse - self.lse) for lse in self.part_lse])

    def tiles(self) -> Iterator[ReadTile]:
        """Scores and weights of every tile, and the factor that makes a row's probabilities sum to 1.

        A log-sum-exp of 30 is off by 1e-6 in fp32, and so would be every row's sum: the rows are normalised.
        """
        lse = self.lse.unsqueeze(-1)
        factors = [torch.exp(tile.peak - lse) for tile in self.kept]
        total = torch.zeros_like(lse)
        for tile, factor in zip(self.kept, factors, strict=True):
            total += tile.total * factor
        for tile, factor in zip(self.kept, factors, strict=True):
            yield ReadTile(tile.start, tile.scores, tile.weights, factor / total)

    def weights(self) -> Iterator[tuple[int, Tensor]]:
        """``(start, (B, H, Q, t))`` attention probabilities, tile by tile; a row sums to 1."""
        for tile in self.tiles():
            yield tile.start, tile.weights * tile.factor


def attend(query: Tensor, parts: list[Part], scale: float, *, keep_scores: bool = False) -> Attention:
    """Attention of ``query (B, H, Q, D)`` over non-empty ``parts``; every row must see something.

    Scores, softmax and log-sum-exp are fp32 (fp64 for fp64 queries). Query heads share their KV head by a
    reshape of the query: keys are never copied. Keeping the scores changes no number of the output.
    """
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    batch, heads, rows, head_dim = query.shape
    reads: list[tuple[Tensor, Tensor]] = []  # output and log-sum-exp of every tile
    part_lse: list[Tensor] = []
    kept: list[Kept] = []
    for part in parts:
        own = query if part.query is None else part.query
        own = own.to(wide) * scale
        first = len(reads)
        for tile in part.tiles():
            scores = masked_scores(own, tile.keys.to(wide), part.rows, tile.start)
            output, lse, softmax = softmax_read(scores, tile.values.to(wide))
            if keep_scores:
                flat = [x.view(batch, heads, rows, -1) for x in (scores, *softmax)]
                kept.append(Kept(tile.start, *flat))
            reads.append((output, lse))
        part_lse.append(torch.logsumexp(torch.stack([lse for _, lse in reads[first:]]), 0))
    output, total = merge(reads)
    return Attention(
        output.view(batch, heads, rows, head_dim).to(query.dtype),
        total.view(batch, heads, rows),
        [lse.view(batch, heads, rows) for lse in part_lse],
        kept,
    )


def masked_scores(query: Tensor, keys: Tensor, rule: RowRule, start: int) -> Tensor:
    """``(B, H, Q, D)`` against ``(B, H_kv, t, D)`` -> masked ``(B, H_kv, G, Q, t)``."""
    batch, _, rows, head_dim = query.shape
    kv_heads, tokens = keys.shape[1], keys.shape[2]
    grouped = query.reshape(batch, kv_heads, -1, head_dim)  # query head h reads KV head h // G
    scores = torch.matmul(grouped, keys.transpose(-1, -2)).view(batch, kv_heads, -1, rows, tokens)
    hidden = rule.hidden(start, start + tokens)
    return scores if hidden is None else scores.masked_fill(hidden, NEG_INF)


def softmax(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``exp(scores - peak)``, each row's peak (``-inf`` for one that sees nothing) and its total."""
    seen_peak = scores.amax(-1, keepdim=True)
    peak = seen_peak.masked_fill(seen_peak == NEG_INF, 0.0)  # a row that sees nothing here: exp(-inf - 0) = 0
    weights = (scores - peak).exp_()
    return weights, seen_peak, weights.sum(-1, keepdim=True)


def log_sum_exp(peak: Tensor, total: Tensor) -> Tensor:
    """Of rows by what :func:`softmax` gave; the last axis goes."""
    return (peak.masked_fill(peak == NEG_INF, 0.0) + total.log()).squeeze(-1)


def softmax_read(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Normalised output ``(B, H_kv, G, Q, D)`` and log-sum-exp ``(B, H_kv, G, Q)`` of one tile; and what
    :func:`softmax` gave."""
    weights, peak, total = softmax(scores)
    output = torch.matmul(weights.flatten(2, 3), values).view(*scores.shape[:-1], -1)
    output = output / total.clamp_min(torch.finfo(total.dtype).tiny)
    return output, log_sum_exp(peak, total), (weights, peak, total)


def merge(reads: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The exact merge of outputs by their log-sum-exps; every row sees something, so the total is finite."""
    if not reads:
        raise ValueError("attention over no parts")
    lse = torch.stack([tile_lse for _, tile_lse in reads])
    total = torch.logsumexp(lse, 0)
    shares = torch.exp(lse - total).unsqueeze(-1)
    return (torch.stack([output for output, _ in reads]) * shares).sum(0), total
