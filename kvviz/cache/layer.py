"""One layer's K and V: sinks, sealed blocks and the exact rest, moved as the plan says.

Decides nothing itself: every boundary comes from :mod:`kvviz.cache.plan`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from kvviz.attention import Part, RowRule, Stored, Tile
from kvviz.cache.buffer import TokenBuffer
from kvviz.cache.plan import PartPlan, StepPlan
from kvviz.cache.sealed import SealedBlocks, tiles_of
from kvviz.events import Tier


@dataclass(frozen=True, slots=True)
class ExactPart:
    """Positions whose K and V are stored as they are."""

    rows: RowRule
    query: Tensor | None
    tile: Tile

    def tiles(self) -> Iterable[Tile]:
        return (self.tile,)

    def stored(self) -> Stored | None:
        return Stored(*self.tile)


@dataclass(frozen=True, slots=True)
class SealedPart:
    """Positions read through their codes: sealed tokens ``[start, stop)``."""

    rows: RowRule
    query: Tensor | None
    blocks: SealedBlocks
    dtype: torch.dtype
    start: int
    stop: int
    device: torch.device | None = None  # where it is read; None: where the session computes

    def tiles(self) -> Iterable[Tile]:
        return self.blocks.tiles(self.dtype, self.start, self.stop, self.device)

    def stored(self) -> Stored | None:
        return self.blocks.stored(self.start, self.stop)


class SealEnergy:
    """Sums of squares of exact values and of errors, per KV head and channel: ``(H_kv, D)`` float64."""

    def __init__(self, n_kv_heads: int, head_dim: int) -> None:
        shape = (n_kv_heads, head_dim)
        self.signal = {side: torch.zeros(shape, dtype=torch.float64) for side in ("key", "value")}
        self.error = {side: torch.zeros(shape, dtype=torch.float64) for side in ("key", "value")}

    def add(self, side: str, exact: Tensor, restored: Tensor) -> None:
        """Count ``(B, H_kv, T, D)`` exact values and what came back."""
        wide = exact.double()
        error = wide - restored.double()
        self.add_sums(side, wide.square().sum((0, 2)).cpu(), error.square().sum((0, 2)).cpu())

    def add_sums(self, side: str, signal: Tensor, error: Tensor) -> None:
        """Count sums of squares ``(H_kv, D)`` that were taken elsewhere."""
        self.signal[side] += signal
        self.error[side] += error


class LayerCache:
    """K and V of one layer on their way from window to block."""

    def __init__(
        self, sealed: SealedBlocks, *, sink_size: int, n_kv_heads: int, head_dim: int, device: torch.device
    ) -> None:
        self.sealed = sealed
        self.sink_size = sink_size
        self.energy = SealEnergy(n_kv_heads, head_dim)
        self.sinks = {side: TokenBuffer(device) for side in ("key", "value")}
        self.recent = {side: TokenBuffer(device) for side in ("key", "value")}
        self.recent_start = sink_size  # position of the first token in ``recent``

    def append(self, keys: Tensor, values: Tensor, step: StepPlan) -> None:
        """Take K and V of the step's rows, each ``(B, H_kv, Q, D)``; seal what is due."""
        self._forget(step.drop_to)
        to_sinks = min(max(0, self.sink_size - step.first), keys.shape[2])
        for side, fresh in (("key", keys), ("value", values)):
            if to_sinks:
                self.sinks[side].append(fresh[:, :, :to_sinks])
            if to_sinks < fresh.shape[2]:
                self.recent[side].append(fresh[:, :, to_sinks:])
        self.seal(step.seal_to)

    def seal(self, seal_to: int) -> None:
        """Quantize the exact blocks below position ``seal_to`` that are not sealed yet. Their exact values
        stay until :meth:`settle`: earlier rows of the step still see them."""
        start = self.sealed.first + self.sealed.tokens
        if seal_to <= start:
            return
        # in pieces: a long prompt sealed at once must not build a full restored copy either
        for piece, piece_stop in tiles_of(start, seal_to, self.sealed.block_size):
            low, high = piece - self.recent_start, piece_stop - self.recent_start
            exact = {side: self.recent[side].view(low, high) for side in ("key", "value")}
            restored = self.sealed.seal(exact["key"], exact["value"])
            for side in ("key", "value"):
                self.energy.add(side, exact[side], restored[side])

    def settle(self, keep_from: int) -> None:
        """Free exact positions below ``keep_from``: sealed or evicted, and read by every row that may."""
        self._forget(keep_from)

    def parts(self, plans: Iterable[PartPlan], rules: Iterable[RowRule], dtype: torch.dtype) -> list[Part]:
        """Parts in the order of their plans."""
        parts: list[Part] = []
        for plan, rule in zip(plans, rules, strict=True):
            if plan.tier is Tier.SINK:
                tile = Tile(0, self.sinks["key"].view(), self.sinks["value"].view())
                parts.append(ExactPart(rule, None, tile))
            elif plan.tier in (Tier.EXACT, Tier.WINDOW):
                low, high = plan.start - self.recent_start, plan.stop - self.recent_start
                keys, values = (self.recent[side].view(low, high) for side in ("key", "value"))
                parts.append(ExactPart(rule, None, Tile(plan.start, keys, values)))
            else:
                first = self.sealed.first
                parts.append(
                    SealedPart(rule, None, self.sealed, dtype, plan.start - first, plan.stop - first)
                )
        return parts

    def exact(self, side: str) -> Tensor:
        """``side`` ("key" or "value") of all positions that are held exactly, ``(B, H_kv, t, D)``."""
        held = [buffer.view() for buffer in (self.sinks[side], self.recent[side]) if len(buffer)]
        return torch.cat(held, dim=2)

    def crop(self, tokens: int) -> None:
        """Keep positions ``[0, tokens)``; the caller has checked that nothing sealed or evicted is cut."""
        for buffer in self.sinks.values():
            buffer.crop(min(tokens, self.sink_size))
        for buffer in self.recent.values():
            buffer.crop(max(0, tokens - self.recent_start))

    def buffers(self) -> Iterable[TokenBuffer]:
        """Every buffer of the layer, for audits."""
        yield from self.sinks.values()
        yield from self.recent.values()
        for side in self.sealed.sides.values():
            for piece in side.pieces:
                yield from piece.buffers.values()

    def _forget(self, position: int) -> None:
        count = min(position - self.recent_start, len(self.recent["key"]))
        if count > 0:
            for buffer in self.recent.values():
                buffer.drop_front(count)
            self.recent_start += count
