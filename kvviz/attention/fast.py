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
from torch.nn.functional import pad

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

#: rows that share one mask: fewer see fewer keys in common, so less is worked out in vain
_MASKED_ROWS = 256


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
    is_causal = query.shape[2] > 1 and rule.is_causal(start, stop)
    edge = max(start, stop - query.shape[2]) if is_causal else _seen_by_all(rule, start, stop)
    for low, high in ((start, edge), (edge, stop)):
        if low < high:
            keys, values = (x[:, :, low - start : high - start] for x in (tile.keys, tile.values))
            if is_causal and low == edge:
                yield _causal(query, keys, values, scale)
            else:
                yield _exact(query, keys, values, rule.hidden(low, high), scale)


def _seen_by_all(rule: RowRule, start: int, stop: int) -> int:
    """Every row sees the tokens from ``start`` up to this one."""
    return min(max(rule.all_to, start), stop) if rule.all_from <= start else start


def _causal(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The last rows read the square of their own keys; rows before them, if any, see nothing of it. It costs
    less than the same square with a mask: what is hidden is not worked out."""
    before = query.shape[2] - keys.shape[2]
    output, lse = _torch_exact(query[:, :, before:], keys, values, scale, is_causal=True)
    if not before:
        return output, lse
    return pad(output, (0, 0, before, 0)), pad(lse, (before, 0), value=NEG_INF)


def _exact(
    query: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    if hidden is None:
        return _torch_exact(query, keys, values, scale)
    blocks = [
        _masked(rows, keys, values, rule, scale)
        for rows, rule in zip(
            torch.split(query, _MASKED_ROWS, 2), torch.split(hidden, _MASKED_ROWS), strict=True
        )
    ]
    if len(blocks) == 1:
        return blocks[0]
    return torch.cat([output for output, _ in blocks], dim=2), torch.cat([lse for _, lse in blocks], dim=2)


def _masked(
    query: Tensor, keys: Tensor, values: Tensor, hidden: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Reads only the keys between the first and the last that any of these rows sees."""
    seen = (~hidden).any(0).nonzero()
    if not len(seen):
        output = torch.zeros_like(query)
        return output, output.new_full(query.shape[:3], NEG_INF)
    low, high = int(seen[0]), int(seen[-1]) + 1
    hidden = hidden[:, low:high]
    mask = torch.zeros(hidden.shape).masked_fill_(hidden, NEG_INF)
    output, lse = _torch_exact(query, keys[:, :, low:high], values[:, :, low:high], scale, mask=mask)
    return output, lse.masked_fill(hidden.all(-1), NEG_INF)  # of a row that sees nothing it says 0


def _torch_exact(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor]:
    """The function behind torch's scaled_dot_product_attention, which keeps the log-sum-exp to itself."""
    read: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, 0.0, is_causal, attn_mask=mask, scale=scale
    )
    return read


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
