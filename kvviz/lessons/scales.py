"""What 4 bits really cost once scales and minima are counted."""

from __future__ import annotations

from typing import Any

from kvviz.lessons.lesson import Choice, Estimate, Evidence, Facts, Lesson, Task, Truth, binned
from kvviz.units import format_bits, format_count, format_share

CACHES = ["int4-scale", "int4-minmax", "int4-g32", "int4-g16-m32"]
TASK = Task("scales", "caches", {"caches": CACHES, "window": 32, "length": 256, "skip": 160})


def _row(evidence: Evidence, cache: str) -> dict[str, Any]:
    return evidence.rows(TASK.name, "caches")[CACHES.index(cache)]


def _bits(evidence: Evidence, cache: str) -> float:
    return float(_row(evidence, cache)["pair_bits"])


def _whole(evidence: Evidence) -> Truth:
    row = _row(evidence, "int4-minmax")
    return binned(row["cache_bits"] / row["pair_bits"], (1.1, 1.6), ("same", "more", "far"))


def _facts(evidence: Evidence) -> Facts:
    result = evidence.results[TASK.name]
    told = {
        name.replace("-", "_"): format_bits(_bits(evidence, name)) for name in CACHES
    }  # fmt: skip
    minmax = _row(evidence, "int4-minmax")
    return told | {
        "cache_bits": format_bits(minmax["cache_bits"]),
        "of_16": format_share(_bits(evidence, "int4-minmax") / 16),
        "worst_of_16": format_share(_bits(evidence, "int4-g16-m32") / 16),
        "tokens": format_count(result.settings["length"]),
        "window": format_count(result.settings["window"]),
        "dtype": result.model.dtype,
        "dtype_bits": str(8 * result.model.dtype_bytes),
        "of_full": format_share(minmax["of_full"]),
    }


LESSON = Lesson(
    key="scales",
    tasks=(TASK,),
    questions=(
        Estimate("minmax", "bits", lambda e: _bits(e, "int4-minmax"), right=0.02, near=0.12, high=64),
        Estimate("tiny", "bits", lambda e: _bits(e, "int4-g16-m32"), right=0.03, near=0.3, high=64),
        Choice("whole", ("same", "more", "far"), _whole),
    ),
    figures=((TASK.name, "bits"), (TASK.name, "bytes")),
    tables=((TASK.name, "caches"),),
    facts=_facts,
    given=_facts,
)
