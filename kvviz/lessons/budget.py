"""Choose a configuration under a budget; the choice is scored against everything else that fits."""

from __future__ import annotations

import math
from typing import Any

from kvviz.lessons.lesson import Evidence, Facts, Lesson, Pick, Task
from kvviz.units import format_bytes, format_count, format_number, format_share

CACHES = ["full", "window", "sinks", "k8v8", "k8v4", "k4v8", "kivi-4", "kivi-2"]
TASK = Task(
    "budget", "caches", {"caches": CACHES, "window": 32, "kept": 150, "length": 512, "skip": 256}
)  # fmt: skip
#: of full precision in the run's own numbers
BUDGET_SHARE = 0.3


def _rows(evidence: Evidence) -> dict[str, dict[str, Any]]:
    return dict(zip(CACHES, evidence.rows(TASK.name, "caches"), strict=True))


def _scores(evidence: Evidence) -> dict[str, float | None]:
    """1 for the least KL that fits, 0 for the most, evenly in its logarithm."""
    rows = _rows(evidence)
    fitting = {name: float(row["kl"]) for name, row in rows.items() if row["of_full"] <= BUDGET_SHARE}
    least, most = min(fitting.values(), default=0.0), max(fitting.values(), default=0.0)

    def score(kl: float) -> float:
        if kl <= least or most <= least:
            return 1.0
        if least <= 0:
            return 0.0
        return 1 - math.log(kl / least) / math.log(most / least)

    return {name: score(fitting[name]) if name in fitting else None for name in rows}


def _of(evidence: Evidence, option: str) -> Facts:
    row = _rows(evidence)[option]
    return {
        "name": str(row["scheme_name"]),
        "bytes": format_bytes(row["cache_bytes"]),
        "of_full": format_share(row["of_full"]),
        "kl": format_number(row["kl"]),
        "ppl": f"{row['ppl']:.2f}",
        "top1": format_share(row["top1"]),
    }


def _facts(evidence: Evidence) -> Facts:
    marks, rows = evidence.results[TASK.name].marks, _rows(evidence)
    keys, values = rows["k8v4"], rows["k4v8"]
    return {
        "tokens": format_count(evidence.results[TASK.name].settings["length"]),
        "kept": format_count(evidence.results[TASK.name].settings["kept"]),
        "share": format_share(BUDGET_SHARE),
        "budget": format_bytes(BUDGET_SHARE * marks["full_bytes"]),
        "full": format_bytes(marks["full_bytes"]),
        "fitting": str(sum(score is not None for score in _scores(evidence).values())),
        "tried": str(len(CACHES)),
        "k8v4_kl": format_number(keys["kl"]),
        "k4v8_kl": format_number(values["kl"]),
        "k8v4_bytes": format_bytes(keys["cache_bytes"]),
        "k4v8_bytes": format_bytes(values["cache_bytes"]),
        "sinks_kl": format_number(rows["sinks"]["kl"]),
        "window_kl": format_number(rows["window"]["kl"]),
    }


LESSON = Lesson(
    key="budget",
    tasks=(TASK,),
    questions=(Pick("cache", tuple(CACHES), _scores, _of),),
    figures=((TASK.name, "loss"), (TASK.name, "bytes")),
    tables=((TASK.name, "caches"),),
    facts=_facts,
    given=_facts,
)
