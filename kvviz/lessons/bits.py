"""8, 4, 2 bits: keys or values, and which layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.lessons.lesson import Choice, Evidence, Facts, Lesson, Task, Truth, binned, of_two
from kvviz.units import format_number, format_ratio, format_share

FOUR, TWO = (
    Task(f"bits-{bits}", "key-or-value", {"bits": bits, "axis": "token", "length": 256, "skip": 196})
    for bits in ("4", "2")
)
LAYERS = Task("bits-layers", "first-layer", {"length": 160, "skip": 132})
#: rows of the experiment, in its order
_NEITHER, _VALUE, _KEY, _BOTH = range(4)
_TOP = 3
_ALIKE = 2.0  # the worst layers' share over an even one, from which they stand out


def _row(evidence: Evidence, task: Task, place: int) -> dict[str, Any]:
    return evidence.rows(task.name, "key-or-value")[place]


def _side(evidence: Evidence) -> Truth:
    key, value = (_row(evidence, FOUR, place)["kl"] for place in (_KEY, _VALUE))
    return of_two(key, value, ("key", "value", "same"))


def _halving(evidence: Evidence) -> Truth:
    four, two = (_row(evidence, task, _BOTH)["kl"] for task in (FOUR, TWO))
    return binned(two / four, (3, 15), ("twice", "ten", "far"))


def _layers(evidence: Evidence) -> tuple[list[int], float, int]:
    """The worst layers, their share of the sum of KLs, and how many layers were tried."""
    kl = evidence.results[LAYERS.name].arrays["kl"]
    worst = np.argsort(-kl, kind="stable")[:_TOP]
    total = float(kl.sum())
    return worst.tolist(), float(kl[worst].sum()) / total if total > 0 else 0.0, len(kl)


def _which(evidence: Evidence) -> Truth:
    worst, share, count = _layers(evidence)
    if share < _ALIKE * min(1, _TOP / count):
        return Truth("alike", ("alike",), share)
    thirds = ("first", "middle", "last")
    place = thirds[min(2, 3 * worst[0] // count)]
    return Truth(place, (place,), share)


def _facts(evidence: Evidence) -> Facts:
    four, two = ([_row(evidence, task, place) for place in range(4)] for task in (FOUR, TWO))
    worst, share, count = _layers(evidence)
    key, value = four[_KEY]["kl"], four[_VALUE]["kl"]
    return {
        "key": format_number(key),
        "value": format_number(value),
        "times": format_ratio(max(key, value) / min(key, value)),
        "eight": format_number(four[_NEITHER]["kl"]),
        "four": format_number(four[_BOTH]["kl"]),
        "two": format_number(two[_BOTH]["kl"]),
        "factor": format_ratio(two[_BOTH]["kl"] / four[_BOTH]["kl"]),
        "two_ppl": format_share(two[_BOTH]["pair_ppl_change"]),
        "key_error": format_share(four[_KEY]["key_error"]),
        "value_error": format_share(four[_VALUE]["value_error"]),
        "worst": ", ".join(str(layer) for layer in worst),
        "share": format_share(share),
        "even": format_share(min(1, _TOP / count)),
        "layers": str(count),
    }


LESSON = Lesson(
    key="bits",
    tasks=(FOUR, TWO, LAYERS),
    questions=(
        Choice("side", ("key", "value", "same"), _side),
        Choice("halving", ("twice", "ten", "far"), _halving),
        Choice("layer", ("first", "middle", "last", "alike"), _which),
    ),
    figures=((FOUR.name, "damage"), (LAYERS.name, "damage")),
    tables=((FOUR.name, "key-or-value"), (TWO.name, "key-or-value"), (LAYERS.name, "first-layer")),
    facts=_facts,
    given=_facts,
)
