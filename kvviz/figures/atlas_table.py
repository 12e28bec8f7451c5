"""What each head looks at, in numbers: the table of heads, and one sentence about the first token.

Knows the means that were taken while the rows were computed; adds nothing to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvviz.catalogue import text
from kvviz.events import MASS_TIERS, HeadSummary
from kvviz.figures.theme import tier_name
from kvviz.record import RunRecord

#: A head whose mean weight on the first token is above this has a sink there (Gu et al.).
SINK_SHARE = 0.3
#: Shares travel as whole numbers of this unit, entropy and distance of theirs.
SHARE_UNIT = 1e-3
ENTROPY_UNIT = 1e-2
DISTANCE_UNIT = 0.1


def summary_at(record: RunRecord, step: int | None) -> HeadSummary | None:
    """The means over all rows up to ``step`` (None: the latest); None before the first."""
    if not record.head_summary:
        return None
    last = len(record.head_summary) - 1
    return record.head_summary[last if step is None else max(0, min(step, last))]


def table_columns(summary: HeadSummary) -> list[dict[str, Any]]:
    """Columns of ``L * H`` numbers, layer by layer: ``value = number * unit``."""
    columns = [_column("first", summary.first_mass, SHARE_UNIT, "share")]
    for index, tier in enumerate(MASS_TIERS):
        columns.append(_column(tier.value, summary.tier_mass[..., index], SHARE_UNIT, "share"))
    columns.append(_column("entropy", summary.entropy, ENTROPY_UNIT, "nats"))
    columns.append(_column("distance", summary.distance, DISTANCE_UNIT, "tokens"))
    return columns


def _column(key: str, values: NDArray[np.float32], unit: float, kind: str) -> dict[str, Any]:
    is_tier = any(key == tier.value for tier in MASS_TIERS)
    return {
        "key": key,
        "name": tier_name(key) if is_tier else text(f"atlas.column.{key}.name"),
        "meaning": text("atlas.column.tier", tier=tier_name(key))
        if is_tier
        else text(f"atlas.column.{key}.meaning"),
        "kind": kind,
        "unit": unit,
        "numbers": np.round(values.astype(np.float64).ravel() / unit).astype(np.int64).tolist(),
    }


def sink_sentence(summary: HeadSummary) -> str:
    """How many heads park their attention on the first token, and which one does most."""
    mass = summary.first_mass
    count = int((mass > SINK_SHARE).sum())
    layer, head = (int(i) for i in np.unravel_index(int(mass.argmax()), mass.shape))
    values = {
        "total": mass.size,
        "share": f"{100 * SINK_SHARE:.0f} %",
        "rows": f"{summary.rows:,}",
        "layer": layer,
        "head": head,
        "most": f"{100 * float(mass[layer, head]):.0f} %",
    }
    if count == 0:
        return text("atlas.no_sink", **values)
    return text("atlas.one_sink" if count == 1 else "atlas.sinks", count=count, **values)
