"""From what a full-precision session holds to a calibration: the values that a cache would have sealed."""

from __future__ import annotations

from torch import Tensor

from kvviz.cache.session import CacheSession
from kvviz.config import CacheConfig, Middle
from kvviz.errors import ConfigError
from kvviz.quant import Calibration, calibrate_side


def sealable(session: CacheSession, cache: CacheConfig, layer: int, side: str) -> Tensor:
    """Exact values ``(1, H_kv, T, D)`` of ``session`` from the last sink of ``cache`` on, whole blocks only,
    as its quantizer would be given them (keys before rotary where it asks for that). The last tokens count
    too, although a window would keep them.

    Raises:
        ConfigError: the session has read less than one block behind the sinks.
    """
    if session.config.middle is not Middle.KEEP:
        raise ConfigError("calibration_exact")
    whole = (session.seen_tokens - cache.sink_size) // cache.block_size * cache.block_size
    if whole <= 0:
        least = cache.sink_size + cache.block_size
        raise ConfigError("calibration_short", tokens=session.seen_tokens, least=least)
    values = session.layers[layer].exact(side)[:, :, cache.sink_size : cache.sink_size + whole]
    if cache.side(layer, side).prerotary:
        return session.key_turn.undo(values, cache.sink_size)
    return values


def calibration_of(session: CacheSession, cache: CacheConfig) -> Calibration:
    """What the sides of ``cache`` learn from the text that ``session`` has read in full precision.

    Raises:
        ConfigError: the text is too short.
    """
    sides = {}
    for layer in range(session.n_layers):
        for side in ("key", "value"):
            config = cache.side(layer, side)
            if config.needs_calibration:
                sides[layer, side] = calibrate_side(
                    sealable(session, cache, layer, side),
                    config,
                    head_dim=session.head_dim,
                    block_size=cache.block_size,
                )
    return Calibration(sides, session.seen_tokens)
