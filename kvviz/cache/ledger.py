"""Bytes, counted from the tensors that are really stored: location -> tier -> part.

*Used* is what the held tokens take, *reserved* is what their storages take (growth headroom included). The
ledger asks buffers for their size; it never estimates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvviz.cache.buffer import TokenBuffer
from kvviz.cache.layer import LayerCache
from kvviz.events import ByteTree, MemorySnapshot, Span, Tier, sum_bytes
from kvviz.offload_config import Place

DEVICE = Place.DEVICE.value


def snapshot(
    layers: Sequence[LayerCache], spans: Sequence[Span], *, numbers_per_token: int, staging_bytes: int = 0
) -> MemorySnapshot:
    """Count everything. ``numbers_per_token`` is ``2 * L * H_kv * D``."""
    used: ByteTree = {}
    reserved: ByteTree = {}
    length = {tier: 0 for tier in Tier} | {span.tier: span.stop - span.start for span in spans}
    sealed_bytes = 0
    for layer in layers:
        for buffer in layer.sinks.values():
            _add(used, DEVICE, Tier.SINK, "exact", len(buffer) * buffer.row_bytes)
            _add(reserved, DEVICE, Tier.SINK, "exact", buffer.reserved_bytes)
        for buffer in layer.recent.values():
            _add_recent(used, reserved, buffer, length[Tier.EXACT], length[Tier.WINDOW])
        for side in layer.sealed.sides.values():
            for piece in side.pieces:
                tier = Tier.QUANTIZED if piece.place is Place.DEVICE else Tier.OFFLOADED
                for part, buffer in piece.buffers.items():
                    n_bytes = len(buffer) * buffer.row_bytes
                    sealed_bytes += n_bytes
                    _add(used, piece.place.value, tier, part, n_bytes)
                    _add(reserved, piece.place.value, tier, part, buffer.reserved_bytes)
    # room for blocks on their way; what is in them is held, and counted, where it lives
    _add(reserved, DEVICE, Tier.OFFLOADED, "staging", staging_bytes)
    held = sum(n for tier, n in length.items() if tier is not Tier.EVICTED)
    sealed_tokens = length[Tier.QUANTIZED] + length[Tier.OFFLOADED]
    return MemorySnapshot(
        tokens=sum(length.values()),
        used=used,
        reserved=reserved,
        effective_bits=_bits(sealed_bytes, sealed_tokens, numbers_per_token),
        cache_bits=_bits(sum_bytes(used), held, numbers_per_token),
    )


def live_bytes(buffers: Iterable[TokenBuffer]) -> int:
    """The storages themselves, each once: what ``reserved`` must add up to."""
    storages = {}
    for buffer in buffers:
        if buffer.storage is not None:
            storage = buffer.storage.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def _add_recent(used: ByteTree, reserved: ByteTree, buffer: TokenBuffer, exact: int, window: int) -> None:
    """Window and exact middle share a buffer; its headroom belongs to the window, where it grows."""
    row = buffer.row_bytes
    _add(used, DEVICE, Tier.EXACT, "exact", exact * row)
    _add(used, DEVICE, Tier.WINDOW, "exact", window * row)
    _add(reserved, DEVICE, Tier.EXACT, "exact", exact * row)
    _add(reserved, DEVICE, Tier.WINDOW, "exact", buffer.reserved_bytes - exact * row)


def _add(tree: ByteTree, location: str, tier: Tier, part: str, n_bytes: int) -> None:
    if n_bytes:
        parts = tree.setdefault(location, {}).setdefault(tier.value, {})
        parts[part] = parts.get(part, 0) + n_bytes


def _bits(n_bytes: int, tokens: int, numbers_per_token: int) -> float | None:
    return 8 * n_bytes / (tokens * numbers_per_token) if tokens else None
