"""A run at one of its steps: where the keys are and what they weigh, for the replay.

Knows spans and the ledger's snapshots of the record; counts nothing itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvviz.events import Tier
from kvviz.figures.theme import TIER_ORDER
from kvviz.record import RunRecord
from kvviz.units import format_bytes


def step_count(record: RunRecord) -> int:
    """Steps that a replay can show."""
    return len(record.spans)


def clamp(record: RunRecord, step: int | None) -> int:
    """The step that is shown when ``step`` is asked for (None: the latest); -1 when there is none."""
    last = step_count(record) - 1
    return last if step is None else max(-1, min(step, last))


def spans_at(record: RunRecord, step: int) -> list[list[int]]:
    """``[tier, start, stop]`` of each span in the text's order; the tier as a place in ``TIER_ORDER``."""
    if step < 0:
        return []
    spans = sorted(record.spans[step], key=lambda span: span.start)
    return [[TIER_ORDER.index(span.tier.value), span.start, span.stop] for span in spans]


def memory_at(record: RunRecord, step: int) -> dict[str, Any]:
    """Used bytes of each tier after a step, with the run's largest total beside it."""
    if step < 0:
        return {"tiers": [], "total": 0, "words": "–", "most": 0}
    tiers = [
        [TIER_ORDER.index(tier.value), n_bytes]
        for tier in Tier
        if (n_bytes := _tier_bytes(record, step, tier.value))
    ]
    total = sum(n_bytes for _, n_bytes in tiers)
    most = max(snapshot.used_bytes for snapshot in record.memory)
    words = [format_bytes(n_bytes) for _, n_bytes in tiers]
    return {"tiers": tiers, "tier_words": words, "total": total, "words": format_bytes(total), "most": most}


def _tier_bytes(record: RunRecord, step: int, tier: str) -> int:
    return sum(sum(tiers.get(tier, {}).values()) for tiers in record.memory[step].used.values())


def tile_window(edges: NDArray[np.int64], cell: int, stop: int, size: int = 64) -> tuple[int, int]:
    """Tokens ``[start, stop)`` of an exact tile: ``size`` around the cell, or the cell if that is larger."""
    first, last = int(edges[cell]), min(int(edges[cell + 1]), stop)
    spare = size - (last - first)
    if spare <= 0:
        return first, last
    start = max(0, min(first - spare // 2, stop - size))
    return start, min(stop, start + size)
