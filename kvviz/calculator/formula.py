"""The formula: how many bytes the K and V of one sequence take under a :class:`CacheConfig`.

Everything is a product of whole numbers (:class:`Term`), so that the same factors give the bytes and the
arithmetic that is shown. Counts nothing that exists; the ledger of the cache does that, independently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from kvviz.calculator.shapes import ModelShape
from kvviz.config import CacheConfig, Middle
from kvviz.events import ByteTree, Tier, sum_bytes
from kvviz.offload_config import Place
from kvviz.quant_config import Axis, Mapping, QuantConfig

SIDES = ("key", "value")
DEVICE, HOST, DISK = (place.value for place in Place)


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of one layer by where they are. ``evicted`` ones are gone, or outside the layer's own window."""

    sink: int
    sealed: int
    exact: int
    window: int
    evicted: int

    @property
    def held_exactly(self) -> int:
        """Sinks, exact middle and window."""
        return self.sink + self.exact + self.window

    @property
    def held(self) -> int:
        """All that has K and V."""
        return self.held_exactly + self.sealed


@dataclass(frozen=True, slots=True)
class Term:
    """Some bytes: the product of ``factors``. ``side`` is "key" or "value", or "both" for exact tokens."""

    location: str
    tier: Tier
    side: str
    part: str
    factors: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """The product."""
        return prod(self.factors)


@dataclass(frozen=True, slots=True)
class KvBytes:
    """One sequence. ``used`` has the ledger's form; ``padding_bytes`` is the empty rest of last pages, on the
    device.

    ``effective_bits`` and ``cache_bits`` are the ledger's too: per sealed number, and per held number.
    """

    used: ByteTree
    padding_bytes: int
    effective_bits: float | None
    cache_bits: float | None

    def bytes_on(self, location: str) -> int:
        """Bytes on ``device`` (padding included), ``host`` or ``disk``."""
        used = sum_bytes({location: self.used.get(location, {})})
        return used + (self.padding_bytes if location == DEVICE else 0)

    @property
    def total_bytes(self) -> int:
        """Everywhere."""
        return sum_bytes(self.used) + self.padding_bytes


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """``count`` layers that hold the same."""

    count: int
    window_tokens: int | None
    key: QuantConfig
    value: QuantConfig


@lru_cache(maxsize=256)  # asked for at every length that is tried
def layer_groups(shape: ModelShape, cache: CacheConfig) -> tuple[LayerGroup, ...]:
    """Layers that differ in nothing are counted together, in order of their first."""
    found: dict[tuple[int | None, QuantConfig, QuantConfig], int] = {}
    for layer in range(shape.n_layers):
        kind = (shape.window_of(layer), cache.side(layer, "key"), cache.side(layer, "value"))
        found[kind] = found.get(kind, 0) + 1
    return tuple(LayerGroup(count, *kind) for kind, count in found.items())


def counts(cache: CacheConfig, tokens: int, window_tokens: int | None = None) -> Counts:
    """Where ``tokens`` seen tokens are in a layer.

    A layer with a window of its own keeps the newest ``window_tokens``; the rule then holds for those alone,
    without sinks, because such a layer cannot see them.
    """
    sinks = cache.sink_size
    outside = 0
    if window_tokens is not None:
        sinks, outside = 0, max(0, tokens - window_tokens)
    seen = tokens - outside
    sink = min(sinks, seen)
    window = min(cache.window_size, seen - sink)
    middle = seen - sink - window
    if cache.middle is Middle.EVICT:
        return Counts(sink, 0, 0, window, outside + middle)
    sealed = middle // cache.block_size * cache.block_size if cache.middle is Middle.QUANTIZE else 0
    return Counts(sink, sealed, middle - sealed, window, outside)


def terms(shape: ModelShape, cache: CacheConfig, tokens: int, dtype_bytes: int = 2) -> list[Term]:
    """Everything that ``tokens`` seen tokens leave in the cache; terms of nothing are left out. The last
    place of an offload is taken for large enough."""
    found: list[Term] = []
    block_bytes = _block_bytes(shape, cache, dtype_bytes) if cache.offload.counts_bytes else 0
    places = cache.offload.capacities(cache.block_size, block_bytes)
    for group in layer_groups(shape, cache):
        held = counts(cache, tokens, group.window_tokens)
        for tier, number in ((Tier.SINK, held.sink), (Tier.EXACT, held.exact), (Tier.WINDOW, held.window)):
            exact = (2, group.count, shape.n_kv_heads, shape.head_dim, number, dtype_bytes)
            found.append(Term(DEVICE, tier, "both", "exact", exact))
        for (place, number), (side, quant) in product(
            _placed(places, held.sealed), zip(SIDES, (group.key, group.value), strict=True)
        ):
            tier = Tier.QUANTIZED if place is Place.DEVICE else Tier.OFFLOADED
            for part, factors in side_terms(
                quant, shape.n_kv_heads, shape.head_dim, cache.block_size, number, dtype_bytes
            ):
                found.append(Term(place.value, tier, side, part, (group.count, *factors)))
    return [term for term in found if term.n_bytes]


def _placed(places: Sequence[tuple[Place, int | None]], tokens: int) -> list[tuple[Place, int]]:
    """``tokens`` sealed tokens by place: each is filled before the next, the last takes the rest."""
    found = []
    for index, (place, most) in enumerate(places):
        last = index == len(places) - 1
        here = tokens if last or most is None else min(tokens, most)
        found.append((place, here))
        tokens -= here
    return found


@lru_cache(maxsize=256)
def _block_bytes(shape: ModelShape, cache: CacheConfig, dtype_bytes: int) -> int:
    """What one sealed block takes over all layers."""
    total = 0
    for group in layer_groups(shape, cache):
        for quant in (group.key, group.value):
            sides = side_terms(
                quant, shape.n_kv_heads, shape.head_dim, cache.block_size, cache.block_size, dtype_bytes
            )
            total += group.count * sum(prod(factors) for _, factors in sides)
    return total


def side_terms(
    quant: QuantConfig, n_kv_heads: int, head_dim: int, block_size: int, tokens: int, dtype_bytes: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Parts of one side of one layer's sealed tokens, whole blocks: the part's name and its factors.

    codes: heads x tokens x bytes of a row (rows are padded to whole bytes); scales and minima: heads x groups
    of tokens x groups of channels x bytes; outliers and their places: the same, times how many a group has.
    """
    if quant.is_none:
        yield "exact", (n_kv_heads, tokens, head_dim, dtype_bytes)
        return
    yield "codes", (n_kv_heads, tokens, -(-head_dim * quant.bits // 8))
    group_tokens, group_channels, heads = _group(quant, n_kv_heads, head_dim, block_size)
    groups = (heads, tokens // group_tokens, head_dim // group_channels)
    if not quant.static:
        yield "scales", (*groups, quant.metadata_bits // 8)
        if quant.mapping is Mapping.MINMAX:
            yield "minima", (*groups, quant.metadata_bits // 8)
    if quant.outlier_percent:
        size = group_tokens * group_channels * (n_kv_heads // heads)
        kept = quant.outliers_of(size)
        yield from _apart((*groups, kept), size, dtype_bytes)
    if quant.guard_percent:
        size = block_size * head_dim
        kept = quant.guarded_of(size)
        yield from _apart((n_kv_heads, tokens // block_size, kept), size, dtype_bytes)


def _apart(places: tuple[int, ...], size: int, dtype_bytes: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Values stored as they are, and where in their group of ``size`` they belong."""
    yield "outliers", (*places, dtype_bytes)
    yield "outlier_places", (*places, 1 if size <= 1 << 8 else 2 if size <= 1 << 16 else 4)


def _group(quant: QuantConfig, n_kv_heads: int, head_dim: int, block_size: int) -> tuple[int, int, int]:
    """Tokens and channels that share a scale, and how many heads have scales of their own."""
    match quant.axis:
        case Axis.TOKEN:
            return 1, quant.group_size or head_dim, n_kv_heads
        case Axis.CHANNEL:
            return quant.group_size or block_size, 1, n_kv_heads
        case Axis.HEAD:
            return block_size, head_dim, n_kv_heads
        case Axis.TENSOR:
            return block_size, head_dim, 1


def kv_bytes(
    shape: ModelShape, cache: CacheConfig, tokens: int, dtype_bytes: int = 2, page_size: int = 1
) -> KvBytes:
    """One sequence of ``tokens`` tokens. Exact tokens of a layer lie in whole pages of ``page_size`` tokens;
    a sealed block is whole by itself."""
    used: ByteTree = {}
    sealed_bytes = 0
    for term in terms(shape, cache, tokens, dtype_bytes):
        parts = used.setdefault(term.location, {}).setdefault(term.tier.value, {})
        parts[term.part] = parts.get(term.part, 0) + term.n_bytes
        sealed_bytes += term.n_bytes if term.side != "both" else 0
    sealed = held = padding = 0
    for group in layer_groups(shape, cache):
        numbers = 2 * group.count * shape.n_kv_heads * shape.head_dim
        layer = counts(cache, tokens, group.window_tokens)
        sealed += numbers * layer.sealed
        held += numbers * layer.held
        padding += numbers * (-layer.held_exactly % page_size) * dtype_bytes
    return KvBytes(
        used=used,
        padding_bytes=padding,
        effective_bits=8 * sealed_bytes / sealed if sealed else None,
        cache_bits=8 * sum_bytes(used) / held if held else None,
    )


def full_bytes(shape: ModelShape, tokens: int, dtype_bytes: int = 2) -> int:
    """``2 * H_kv * D * bytes`` times the tokens that each layer keeps: nothing quantized, nothing evicted."""
    kept = (min(tokens, shape.window_of(layer) or tokens) for layer in range(shape.n_layers))
    return 2 * shape.n_kv_heads * shape.head_dim * dtype_bytes * sum(kept)
