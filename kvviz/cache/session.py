"""One run's cache: all layers, one plan, and what it takes for rows to be read.

Knows shapes and a source of rotary angles; knows no model, no text and no page. Batch is 1. A session is used
by one run at a time and shares nothing with other sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from kvviz.attention import (
    Attention,
    Kernel,
    Part,
    RowRule,
    attend,
    difference,
    is_fast,
    look,
    read,
    rotate,
)
from kvviz.cache import ledger
from kvviz.cache.ahead import seal_ahead
from kvviz.cache.apart import attend_apart
from kvviz.cache.buffer import TokenBuffer
from kvviz.cache.fetch import fetch_of, notes_of
from kvviz.cache.layer import ExactPart, LayerCache
from kvviz.cache.pieces import open_spaces
from kvviz.cache.plan import PartPlan, Plan, StepPlan, joined, joined_exact
from kvviz.cache.prerotary import KeyTurn, Rotary
from kvviz.cache.sealed import SealedBlocks
from kvviz.cache.shares import near_and_far
from kvviz.config import CacheConfig, Middle, OffloadRead, Position, Prefill
from kvviz.errors import KvvizError
from kvviz.events import MemorySnapshot, SealError, Span, StepTimeline, Tier
from kvviz.offload import Timeline
from kvviz.quant import Calibration, Quantizer, make_quantizer
from kvviz.quant_config import QuantConfig

#: called for each layer of each step: layer, what its rows read, the step's plan
Observer: TypeAlias = Callable[[int, Attention, StepPlan], None]

_Rules: TypeAlias = list[RowRule]
#: cosine and sine of the turn of a part's query, where it is turned
_Turns: TypeAlias = list[tuple[Tensor, Tensor] | None]


class CacheSession:
    """The K and V of one run under one :class:`CacheConfig`."""

    def __init__(
        self,
        config: CacheConfig,
        *,
        n_layers: int,
        n_heads: int,
        n_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        rotary: Rotary,
        calibration: Calibration | None = None,
        kernel: Kernel | None = None,
    ) -> None:
        """``calibration`` is for quantizers that need one (``nuq``, ``+static``); without a ``kernel`` single
        rows are read tile by tile, and quantizers restore codes."""
        self.config, self.calibration = config, calibration
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, head_dim
        self.n_layers, self.dtype, self.device = n_layers, dtype, device
        self.observer: Observer | None = None
        self.kernel = kernel
        block = torch.zeros(1, n_kv_heads, config.block_size, head_dim, dtype=dtype, device=device)
        self._spaces = open_spaces(config, device, n_layers, self._quantizer, block)
        self._on_host = config.offload_read is OffloadRead.ON_HOST
        self._fast = is_fast(dtype, device) and not self._on_host
        #: off until somebody switches it on
        self.timeline = Timeline(device)
        self._fetch = None if self._on_host else fetch_of(self._spaces, device, self.timeline)
        self.plan = Plan(config, self._spaces[0].most_tokens if self._spaces[0].is_near else 0)
        self._rotary = rotary
        self.key_turn = KeyTurn(rotary, dtype, device)
        self._exact_prompt = config.prefill is Prefill.EXACT
        self.reset()

    def reset(self) -> None:
        """Forget every token and give the memory back."""
        if self._fetch is not None:
            self._fetch.close()
        self.timeline.clear()
        self.seen_tokens = 0
        self._frozen_stop: int | None = None
        self._step: StepPlan | None = None
        self._reads: tuple[PartPlan, ...] = ()
        self._rules: _Rules = []
        self._turns: _Turns = []
        self._looks: tuple[_Rules, _Turns] | None = None  # those of the parts apart, when someone looks
        self.layers = [self._new_layer(index) for index in range(self.n_layers)]

    def _new_layer(self, index: int) -> LayerCache:
        config = self.config
        key = config.side(index, "key")
        sealed = SealedBlocks(
            self._quantizer(index, "key"),
            self._quantizer(index, "value"),
            first=config.sink_size,
            device=self.device,
            spaces=self._spaces,
            key_turn=self.key_turn if key.prerotary else None,
            writing=partial(self.timeline.blocking, "copy_out", index),
            kernel=self.kernel,
        )
        return LayerCache(
            sealed,
            sink_size=config.sink_size,
            n_kv_heads=self.n_kv_heads,
            head_dim=self.head_dim,
            device=self.device,
        )

    def _quantizer(self, layer: int, side: str) -> Quantizer:
        config = self.config.side(layer, side)
        if self.config.middle is not Middle.QUANTIZE:
            config = QuantConfig()  # nothing will be sealed
        return make_quantizer(
            config,
            head_dim=self.head_dim,
            block_size=self.config.block_size,
            dtype=self.dtype,
            calibration=self.calibration.side(layer, side) if self.calibration else None,
        )

    # -- a step ----------------------------------------------------------------------------------

    def begin_prompt(self) -> None:
        """The rows that follow are a prompt: with an exact prefill, sealing waits for :meth:`end_prompt`."""
        if self._exact_prompt and self.config.middle is Middle.QUANTIZE:
            layer = self.layers[0].sealed
            self._frozen_stop = layer.first + layer.tokens

    def end_prompt(self) -> None:
        """The prompt has been read; seal and free what the last row's rule says."""
        if self._frozen_stop is None:
            return
        self._frozen_stop = None
        if self.seen_tokens:
            seal_to = self.plan.sealed_stop(self.seen_tokens - 1)
            self.timeline.begin(0)
            for layer in self.layers:
                if len(layer.recent["key"]):  # a layer that was not read has nothing to seal
                    layer.seal(seal_to)
                    layer.settle(seal_to)
                self.timeline.end_layer()
            self.timeline.finish()

    def begin(self, rows: int) -> StepPlan:
        """Plan the next ``rows`` tokens; every layer then appends and reads once.

        Raises:
            KvvizError: the step before ended by an error, so that layers disagree; only a reset helps.
        """
        if self._step is not None:
            raise KvvizError("step_unfinished")
        self.timeline.begin(rows)
        step = self.plan.step(self.seen_tokens, self.seen_tokens + rows, self._frozen_stop)
        self._step = step
        self._reads = step.parts if self._on_host else joined(step.parts)
        if self._fast:
            self._reads = joined_exact(self._reads)
        self._rules, self._turns = self._rules_of(self._reads), self._turns_of(step, self._reads)
        self._looks = None
        seal_ahead(self.layers, min(step.seal_to, self.seen_tokens))
        if self._fetch is not None:
            self._fetch.request(0, self.layers[0].sealed, step.seal_to)
        return step

    def append(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """K and V of the step's rows, each ``(1, H_kv, Q, D)``.

        Raises:
            KvvizError: more than one sequence at a time.
        """
        if keys.shape[0] != 1:
            raise KvvizError("batch_one", batch=keys.shape[0])
        self.layers[layer].append(keys, values, self._current())

    def attend(self, layer: int, query: Tensor, scale: float) -> Tensor:
        """What the step's rows read in ``layer``: ``(1, H, Q, D)`` -> ``(1, H, Q, D)``.

        Observing changes no number of the output.
        """
        step, cache = self._current(), self.layers[layer]
        if self._fetch is not None:
            self._fetch.take(layer, cache.sealed, step.seal_to)
            if layer + 1 < self.n_layers:
                self._fetch.request(layer + 1, self.layers[layer + 1].sealed, step.seal_to)
        parts = self._parts(cache, query, self._reads, self._rules, self._turns)
        way = self._read_fast if self._fast else self._read_tiles
        output = way(layer, query, parts, scale)
        if self._fetch is not None:
            self._fetch.release(cache.sealed)
        cache.settle(step.keep_from)
        cache.sealed.let_go()
        self.timeline.end_layer()
        return output

    def _read_tiles(self, layer: int, query: Tensor, parts: list[Part], scale: float) -> Tensor:
        step, keep = self._current(), self.observer is not None
        far_at = [part.tier for part in self._reads].index(Tier.OFFLOADED) if self._reads_apart else None
        timing = partial(self.timeline.on_host, layer)
        if far_at is None:
            result = attend(query, parts, scale, keep_scores=keep)
        else:
            result = attend_apart(query, parts, self._reads, far_at, scale, keep_scores=keep, timing=timing)
        if self.observer is not None:
            with self.timeline.blocking("look", layer):
                if len(self._reads) < len(step.parts):
                    cache = self.layers[layer]
                    result.part_lse[:] = near_and_far(cache, step, self._reads, result.part_lse, query, scale)
                self.observer(layer, result, step)
        return result.output

    def _read_fast(self, layer: int, query: Tensor, parts: list[Part], scale: float) -> Tensor:
        watched = self.observer is not None
        reading = read(query, parts, scale, self.kernel, keep_scores=watched)
        if self.observer is not None:
            with self.timeline.blocking("look", layer):
                step = self._current()
                if self._looks is None:
                    self._looks = (self._rules_of(step.parts), self._turns_of(step, step.parts))
                seen = self._parts(self.layers[layer], query, step.parts, *self._looks)
                self.observer(layer, look(query, seen, scale, reading), step)
        return reading.output

    def _parts(
        self, cache: LayerCache, query: Tensor, plans: Sequence[PartPlan], rules: _Rules, turns: _Turns
    ) -> list[Part]:
        parts = cache.parts(plans, rules, self.dtype)
        for place, (part, turn) in enumerate(zip(parts, turns, strict=True)):
            if turn is not None and isinstance(part, ExactPart):
                parts[place] = ExactPart(part.rows, rotate(query, *turn), part.tile)
        return parts

    def _rules_of(self, plans: Sequence[PartPlan]) -> _Rules:
        return [RowRule.of(part.low, part.high, self.device) for part in plans]

    def _turns_of(self, step: StepPlan, plans: Sequence[PartPlan]) -> _Turns:
        return [self._turn(step, self.stands(step, part.tier)) for part in plans]

    @property
    def _reads_apart(self) -> bool:
        return self._on_host and any(part.tier is Tier.OFFLOADED for part in self._reads)

    def finish(self) -> None:
        """All layers have read the step's rows."""
        if self._fetch is not None:
            self._fetch.drop()
        self.seen_tokens = self._current().stop
        self._step = None
        self.timeline.finish()

    def _current(self) -> StepPlan:
        if self._step is None:
            raise RuntimeError("no step has begun")
        return self._step

    def stands(self, step: StepPlan, tier: Tier) -> list[int] | None:
        """Positions at which the step's queries meet a part of ``tier``; None is where the text put them.

        Counted inside the cache, only the sinks are met from elsewhere: rotary positions are relative, so
        the window needs nothing.
        """
        if self.config.position is not Position.IN_CACHE or tier is not Tier.SINK:
            return None
        return [self.plan.cache_position(row) for row in range(step.first, step.stop)]

    def _turn(self, step: StepPlan, stands: list[int] | None) -> tuple[Tensor, Tensor] | None:
        """The turn from each row's own position to where it stands for the scores of a part."""
        rows = range(step.first, step.stop)
        if stands is None or stands == list(rows):
            return None
        both = torch.tensor([*rows, *stands], device=self.device)
        cos, sin = (angle.to(torch.float64) for angle in self._rotary(both))
        n = len(stands)
        turn_cos, turn_sin = difference(cos[:n], sin[:n], cos[n:], sin[n:])
        wide = torch.float64 if self.dtype is torch.float64 else torch.float32
        return turn_cos.to(wide), turn_sin.to(wide)

    # -- what is held ----------------------------------------------------------------------------

    def crop(self, tokens: int) -> None:
        """Keep the first ``tokens`` tokens, as if the others had never come. 0 is a reset.

        Raises:
            KvvizError: the cut lies in sealed blocks or past evicted tokens, whose exact values are gone.
        """
        if tokens >= self.seen_tokens:
            return
        if tokens <= 0:
            self.reset()
            return
        edge = self.plan.exact_start(self.seen_tokens - 1)
        if self.plan.exact_start(tokens - 1) != edge:
            raise KvvizError("crop", tokens=tokens, edge=edge)
        for layer in self.layers:
            layer.crop(tokens)
        self.seen_tokens = tokens

    def spans(self) -> tuple[Span, ...]:
        """Which positions are in which tier now."""
        return self.plan.spans(self.seen_tokens, self._frozen_stop)

    def memory(self) -> MemorySnapshot:
        """The ledger now."""
        return ledger.snapshot(
            self.layers,
            self.spans(),
            numbers_per_token=2 * self.n_layers * self.n_kv_heads * self.head_dim,
            staging_bytes=self.staging_bytes,
        )

    def seal_error(self) -> SealError:
        """Energies of everything sealed so far, ``(L, H_kv, D)``."""
        energies = {}
        for side in ("key", "value"):
            for kind in ("signal", "error"):
                stacked = torch.stack([getattr(layer.energy, kind)[side] for layer in self.layers])
                energies[f"{side}_{kind}"] = stacked.numpy()
        return SealError(sealed_tokens=self.layers[0].sealed.tokens, **energies)

    def take_timeline(self) -> StepTimeline | None:
        """What happened when since this was asked last; None where nothing was recorded."""
        return self.timeline.take(notes_of(self._fetch, self._spaces, self.device))

    @property
    def staging_bytes(self) -> int:
        """What the two buffers for blocks on their way take on the device."""
        return 0 if self._fetch is None else self._fetch.n_bytes

    def buffers(self) -> Iterable[TokenBuffer]:
        """Every buffer of tokens, for audits."""
        for layer in self.layers:
            yield from layer.buffers()
