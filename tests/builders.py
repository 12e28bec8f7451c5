"""Small synthetic runs, built from events only, for tests that need a record and no model.

Tiers follow the cache rule of the README; bytes, attention and energies are simple deterministic numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvviz.config import CacheConfig, Middle, Offload, RunConfig
from kvviz.events import (
    MASS_TIERS,
    AttentionRows,
    ByteTree,
    Event,
    HeadSummary,
    MapGrid,
    MemorySnapshot,
    ModelFacts,
    PrefillProgress,
    RunFailed,
    RunFinished,
    RunStarted,
    SealError,
    Span,
    StepState,
    Tier,
    TokenGenerated,
    TokenLabel,
    sum_bytes,
)
from kvviz.quant_config import Mapping, QuantConfig
from kvviz.record import RunRecord

FULL = CacheConfig(sink_size=2, window_size=3, middle=Middle.KEEP)
EVICT = CacheConfig(sink_size=2, window_size=3, middle=Middle.EVICT)
STACK = CacheConfig(
    sink_size=2,
    window_size=3,
    middle=Middle.QUANTIZE,
    block_size=2,
    key=QuantConfig.parse("int8:token:g16:absmax"),
    value=QuantConfig.parse("int4:token:g16:minmax"),
    offload=Offload.HOST,
)


def make_facts(
    n_layers: int = 2, n_heads: int = 4, n_kv_heads: int = 2, head_dim: int = 16, dtype_bytes: int = 4
) -> ModelFacts:
    """A made-up model of the given shape."""
    return ModelFacts(
        name="tiny", family="llama", weights_hash="0" * 16, source="test", n_layers=n_layers, n_heads=n_heads,
        n_kv_heads=n_kv_heads, head_dim=head_dim, context_tokens=8192, vocab_size=100,
        dtype={4: "float32", 2: "bfloat16"}[dtype_bytes], dtype_bytes=dtype_bytes, device="cpu",
        weights_bytes=1000,
    )  # fmt: skip


def make_spans(cache: CacheConfig, tokens: int) -> tuple[Span, ...]:
    """Where ``tokens`` seen tokens live, by the cache rule."""
    sink = min(cache.sink_size, tokens)
    window = max(sink, tokens - cache.window_size)
    sealed = sink
    middle = Tier.EXACT
    if cache.middle is Middle.EVICT:
        sealed, middle = window, Tier.EVICTED
    elif cache.middle is Middle.QUANTIZE:
        sealed = sink + max(0, window - sink) // cache.block_size * cache.block_size
        middle = Tier.QUANTIZED if cache.offload.is_none else Tier.OFFLOADED
    spans = (
        Span(Tier.SINK, 0, sink),
        Span(middle, sink, sealed),
        Span(Tier.EXACT, sealed, window),
        Span(Tier.WINDOW, window, tokens),
    )
    return tuple(span for span in spans if span.stop > span.start)


def _side_bytes(config: QuantConfig, numbers: int, dtype_bytes: int) -> dict[str, int]:
    if config.is_none:
        return {"exact": numbers * dtype_bytes}
    groups = numbers // (config.group_size or numbers)
    parts = {"codes": numbers * config.bits // 8, "scales": groups * config.metadata_bits // 8}
    if config.mapping is Mapping.MINMAX:
        parts["minima"] = groups * config.metadata_bits // 8
    return parts


def make_memory(cache: CacheConfig, facts: ModelFacts, tokens: int) -> MemorySnapshot:
    """What the cache would store: exact numbers in the run's dtype, sealed ones as codes and metadata."""
    per_side = facts.n_layers * facts.n_kv_heads * facts.head_dim
    used: ByteTree = {"device": {}, "host": {}}
    sealed_bits = sealed_numbers = 0
    for span in make_spans(cache, tokens):
        numbers = (span.stop - span.start) * per_side
        if span.tier is Tier.EVICTED:
            continue
        place = used["host" if span.tier is Tier.OFFLOADED else "device"].setdefault(span.tier.value, {})
        if span.tier in (Tier.QUANTIZED, Tier.OFFLOADED):
            for side in (cache.key, cache.value):
                for part, n_bytes in _side_bytes(side, numbers, facts.dtype_bytes).items():
                    place[part] = place.get(part, 0) + n_bytes
            sealed_bits += 8 * sum(place.values())
            sealed_numbers += 2 * numbers
        else:
            place["exact"] = place.get("exact", 0) + 2 * numbers * facts.dtype_bytes
    used = {location: tiers for location, tiers in used.items() if tiers}
    stored = sum(s.stop - s.start for s in make_spans(cache, tokens) if s.tier is not Tier.EVICTED)
    return MemorySnapshot(
        tokens=tokens,
        used=used,
        reserved=used,
        effective_bits=sealed_bits / sealed_numbers if sealed_numbers else None,
        cache_bits=8 * sum_bytes(used) / (2 * per_side * stored) if stored else None,
    )


def make_seal_error(cache: CacheConfig, facts: ModelFacts, tokens: int, outlier: float = 0.0) -> SealError:
    """Energies of everything sealed. Every channel has signal 1 a token; ``outlier`` is added to K channel 7.

    K errs by ``0.01 * (layer + 1)`` and V by ``0.04 * (layer + 1)`` of a unit; exact sides by nothing.
    """
    sealed_tiers = (Tier.QUANTIZED, Tier.OFFLOADED)
    sealed = sum(s.stop - s.start for s in make_spans(cache, tokens) if s.tier in sealed_tiers)
    shape = (facts.n_layers, facts.n_kv_heads, facts.head_dim)
    layers = (np.arange(facts.n_layers) + 1.0)[:, None, None]
    signal = np.full(shape, float(sealed))
    key_signal = signal.copy()
    if outlier and facts.head_dim > 7:
        key_signal[:, 0, 7] += sealed * outlier**2
    return SealError(
        key_signal=key_signal,
        key_error=signal * layers * (0.0 if cache.key.is_none else 0.01),
        value_signal=signal,
        value_error=signal * layers * (0.0 if cache.value.is_none else 0.04),
        sealed_tokens=sealed,
    )


def make_attention(cache: CacheConfig, facts: ModelFacts, tokens: int, seed: int = 0) -> NDArray[np.float32]:
    """Probabilities ``(L, H, tokens, tokens)``: rows sum to 1 over the tokens they see, sinks favoured."""
    scores = np.random.default_rng(seed).normal(size=(facts.n_layers, facts.n_heads, tokens, tokens))
    scores[..., : cache.sink_size] += 2
    rows, columns = np.arange(tokens)[:, None], np.arange(tokens)[None, :]
    seen = columns <= rows
    if cache.middle is Middle.EVICT:
        seen &= (columns < cache.sink_size) | (columns > rows - cache.window_size)
    weights = np.where(seen, np.exp(scores), 0.0)
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def row_mass(cache: CacheConfig, row: NDArray[np.float32]) -> NDArray[np.float32]:
    """``(L, H, len(MASS_TIERS))`` of the newest row, ``(L, H, tokens)``."""
    mass = np.zeros((*row.shape[:2], len(MASS_TIERS)), dtype=np.float32)
    for span in make_spans(cache, row.shape[-1]):
        if span.tier in MASS_TIERS:
            mass[..., MASS_TIERS.index(span.tier)] += row[..., span.start : span.stop].sum(-1)
    return mass


def make_summary(cache: CacheConfig, maps: NDArray[np.float32]) -> HeadSummary:
    """Means over the rows of ``maps (L, H, R, tokens)``, the last ``R`` rows of ``tokens``."""
    rows, tokens = maps.shape[-2:]
    first = tokens - rows
    back = np.arange(first, tokens)[:, None] - np.arange(tokens)[None, :]
    entropy = -(maps * np.log(np.where(maps > 0, maps, 1))).sum(-1).mean(-1)
    mass = np.mean([row_mass(cache, maps[:, :, i, : first + i + 1]) for i in range(rows)], axis=0)
    columns = (maps[..., 0].mean(-1), mass, entropy, (maps * back).sum(-1).mean(-1))
    return HeadSummary(rows, *(column.astype(np.float32) for column in columns))


def make_state(
    cache: CacheConfig,
    facts: ModelFacts,
    row: NDArray[np.float32],
    tokens: int,
    outlier: float = 0.0,
    summary: HeadSummary | None = None,
) -> StepState:
    """The state after ``tokens`` rows; ``row`` is ``(L, H, tokens)``, what the newest row looked at, and all
    that the summary knows when none is given."""
    return StepState(
        spans=make_spans(cache, tokens),
        memory=make_memory(cache, facts, tokens),
        tier_mass=row_mass(cache, row),
        received=row.mean((0, 1)).astype(np.float32),
        head_summary=summary or make_summary(cache, row[:, :, None]),
        seal_error=make_seal_error(cache, facts, tokens, outlier),
    )


def make_labels(n_tokens: int) -> list[TokenLabel]:
    """``w0``, ``␠w1``, ``␠w2`` and so on."""
    return [TokenLabel(f"␠w{i}" if i else "w0", f" w{i}".encode() if i else b"w0") for i in range(n_tokens)]


def make_grid(n_tokens: int, tokens_per_cell: int = 1) -> MapGrid:
    """Uniform cells over ``n_tokens``; the last one may be smaller."""
    edges = np.append(np.arange(0, n_tokens, tokens_per_cell), n_tokens).astype(np.int64)
    return MapGrid(edges, tokens_per_cell)


def reduce_map(values: NDArray[np.float32], grid: MapGrid) -> NDArray[np.float16]:
    """Token maps ``(L, H, T, T)`` max-reduced to cells."""
    starts = [int(e) for e in grid.edges[:-1] if e < values.shape[-1]]
    rows = np.maximum.reduceat(values, starts, axis=-2)
    return np.maximum.reduceat(rows, starts, axis=-1).astype(np.float16)


def make_events(
    n_prompt: int = 8,
    n_new: int = 4,
    *,
    cache: CacheConfig = STACK,
    facts: ModelFacts | None = None,
    label: str = "full stack",
    end: str | None = "length",
    generated: Sequence[TokenLabel] | None = None,
    generated_ids: Sequence[int] | None = None,
    tokens_per_cell: int = 1,
    outlier: float = 0.0,
    seed: int = 0,
) -> list[Event]:
    """The events of one run: ``end`` is a finish reason, ``failed``, or None for a run that is still live.

    Step ``i`` takes ``10 + i`` ms, the prompt's step 100 ms. ``generated`` labels are the text's bytes.
    """
    facts = facts or make_facts()
    tokens = n_prompt + max(0, n_new - 1)
    labels = make_labels(n_prompt + n_new)
    new_labels = list(generated) if generated is not None else labels[n_prompt:]
    new_ids = list(generated_ids) if generated_ids is not None else list(range(50, 50 + n_new))
    maps = make_attention(cache, facts, tokens, seed)
    grid = make_grid(n_prompt + n_new, tokens_per_cell)
    config = RunConfig(prompt="made up", cache=cache, label=label, max_new_tokens=max(1, n_new))
    events: list[Event] = [
        RunStarted(0, f"run-{seed}", config.to_dict(), facts, tuple(range(n_prompt)),
                   tuple(labels[:n_prompt]), grid),
        PrefillProgress(0, n_prompt, n_prompt),
    ]  # fmt: skip
    for step in range(n_new):
        seen = n_prompt + step
        summary = make_summary(cache, maps[:, :, :seen, :seen])
        state = make_state(cache, facts, maps[:, :, seen - 1, :seen], seen, outlier, summary)
        milliseconds = 100.0 if step == 0 else 10.0 + step
        name = new_labels[step]
        events.append(
            TokenGenerated(0, step, new_ids[step], name, name.raw.decode(), -0.5, milliseconds, state)
        )
    if n_new:
        events.insert(2, AttentionRows(0, 0, reduce_map(maps, grid)))
    if end == "failed":
        events.append(RunFailed(0, "It broke."))
    elif end is not None:
        events.append(RunFinished(0, end, "", 100.0 if n_new else None, 12.0 if n_new > 1 else None))
    return events


def make_record(*args: object, **kwargs: object) -> RunRecord:
    """A record of :func:`make_events`."""
    return record_of(make_events(*args, **kwargs))  # type: ignore[arg-type]


def record_of(events: Sequence[Event]) -> RunRecord:
    """Apply events one after another."""
    record = RunRecord()
    for event in events:
        record.apply(event)
    return record
