"""The fast ways to read parts, for fp32 on the CPU: a compiled kernel for one row, torch's own exact
attention for many. Their numbers are those of :func:`~kvviz.attention.attend`, but for rounding.

Looking is apart from reading: :func:`look` works out scores and shares beside an output that is
there already, so that whoever looks changes no bit of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from kvviz.attention.kernel import Asked, Kernel
from kvviz.attention.parts import (
    NEG_INF,
    Attention,
    Kept,
    Part,
    RowRule,
    Tile,
    log_sum_exp,
    masked_scores,
    merge,
    softmax,
)


class Reading(NamedTuple):
    """``output (B, H, Q, D)``, and the scores ``(B, H, Q, T)`` of tokens from ``start`` on where the way of
    reading left them, to look at."""

    output: Tensor
    scores: list[tuple[int, Tensor]]


def is_fast(dtype: torch.dtype, device: torch.device) -> bool:
    """True where :func:`read` may be used."""
    return dtype is torch.float32 and device.type == "cpu"


def read(
    query: Tensor, parts: list[Part], scale: float, kernel: Kernel | None, *, keep_scores: bool = False
) -> Reading:
    """What ``query (1, H, Q, D)`` reads of ``parts``; every row must see something. Keeping the scores
    changes no bit of the output."""
    if kernel is not None and query.shape[2] == 1:
        asked = _asked(query, parts)
        if asked is not None and kernel.fits(query, [ask.stored for ask in asked]):
            decoded = kernel.decode(asked, scale, keep_scores=keep_scores)
            return Reading(decoded.output, decoded.scores)
    reads: list[tuple[Tensor, Tensor]] = []
    for part in parts:
        own = query if part.query is None else part.query
        for tile in part.tiles():
            reads += _read_tile(own, tile, part.rows, scale)
    return Reading(reads[0][0] if len(reads) == 1 else merge(reads)[0], [])


def _asked(query: Tensor, parts: list[Part]) -> list[Asked] | None:
    """For one row: everything stored, or None when some of it cannot be read so or is not seen."""
    asked = []
    for part in parts:
        stored = part.stored()
        if stored is None or part.rows.hidden(stored.start, stored.start + stored.tokens) is not None:
            return None
        asked.append(Asked(query if part.query is None else part.query, stored))
    return asked


def _read_tile(query: Tensor, tile: Tile, rule: RowRule, scale: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Output ``(B, H, Q, D)`` and log-sum-exp ``(B, H, Q)`` of what all rows see, and of the rest."""
    start, stop = tile.start, tile.start + tile.keys.shape[2]
    edge = min(max(rule.all_to, start), stop) if rule.all_from <= start else start
    for low, high in ((start, edge), (edge, stop)):
        if low < high:
            keys, values = (x[:, :, low - start : high - start] for x in (tile.keys, tile.values))
            yield _exact(query, keys, values, rule.hidden(low, high), scale)


def _exact(
    query: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    mask = None if hidden is None else torch.zeros(hidden.shape).masked_fill_(hidden, NEG_INF)
    # the function behind torch's scaled_dot_product_attention, which keeps the log-sum-exp to itself
    output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, 0.0, False, attn_mask=mask, scale=scale
    )
    if hidden is not None:  # of a row that sees nothing it says 0
        lse = lse.masked_fill(hidden.all(-1), NEG_INF)
    return output, lse


def look(query: Tensor, parts: list[Part], scale: float, reading: Reading) -> Attention:
    """Scores and shares of ``parts`` for a reading of the same positions, however they were joined there."""
    batch, heads, rows, _ = query.shape
    kept: list[Kept] = []
    part_lse: list[Tensor] = []
    for part in parts:
        own = (query if part.query is None else part.query) * scale
        first, lse = len(kept), []
        for start, scores in _scores(own, part, reading.scores):
            flat = scores.reshape(batch, heads, rows, -1)
            weights, peak, total = softmax(flat)
            kept.append(Kept(start, flat, weights, peak, total))
            lse.append(log_sum_exp(peak, total))
        assert len(kept) > first
        part_lse.append(lse[0] if len(lse) == 1 else torch.logsumexp(torch.stack(lse), 0))
    return Attention(reading.output, torch.logsumexp(torch.stack(part_lse), 0), part_lse, kept)


def _scores(own: Tensor, part: Part, known: list[tuple[int, Tensor]]) -> Iterator[tuple[int, Tensor]]:
    """Scores of a part: those that are known, else from its tiles."""
    stored = part.stored() if known else None
    if stored is not None:
        low, high = stored.start, stored.start + stored.tokens
        for start, scores in known:
            if start <= low and high <= start + scores.shape[-1]:
                yield low, scores[..., low - start : high - start]
                return
    for tile in part.tiles():
        yield tile.start, masked_scores(own, tile.keys, part.rows, tile.start)
