"""A run as plain JSON values, the same for a terminal and for a caller over the network.

Knows records only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kvviz import timeline
from kvviz.events import MASS_TIERS
from kvviz.record import RunRecord


def run_dict(record: RunRecord) -> dict[str, Any]:
    """A finished run as plain JSON values. Tier mass: mean over heads and generated tokens, by layer."""
    memory = record.memory[-1] if record.memory else None
    facts = record.model
    return {
        "text": record.text,
        "token_ids": record.generated_ids,
        "prompt_tokens": len(record.prompt_ids),
        "status": record.status,
        "message": record.message,
        "bytes": memory.used if memory else {},
        "bytes_reserved": memory.reserved if memory else {},
        "bytes_total": memory.used_bytes if memory else 0,
        "effective_bits": memory.effective_bits if memory else None,
        "cache_bits": memory.cache_bits if memory else None,
        "ttft_ms": record.ttft_ms,
        "tpot_ms": record.tpot_ms,
        "tier_mass": mass_by_layer(record),
        "timeline": timeline.to_plain(record.timelines),
        "model": facts.name if facts else None,
        "weights_hash": facts.weights_hash if facts else None,
        "commit": facts.commit if facts else None,
        "dtype": facts.dtype if facts else None,
        "device": facts.device if facts else None,
        "config": record.config,
    }


def mass_by_layer(record: RunRecord) -> list[dict[str, float]]:
    """Share of attention by tier for each layer."""
    if not record.tier_mass:
        return []
    layers = np.stack(record.tier_mass).astype(np.float64).mean(axis=(0, 2))
    return [
        {tier.value: float(share) for tier, share in zip(MASS_TIERS, layer, strict=True)} for layer in layers
    ]


def finite(value: Any) -> Any:
    """The same plain value with None for infinities and not-a-number, at any depth."""
    if isinstance(value, dict):
        return {key: finite(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(child) for child in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
