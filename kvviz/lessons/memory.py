"""Fluency is not memory: a cache that predicts well may have forgotten what it was told."""

from __future__ import annotations

from typing import Any

from kvviz.lessons.lesson import Choice, Evidence, Facts, Lesson, Task, Truth, binned, yes_no
from kvviz.units import format_count, format_share

CACHES = ["full", "sinks", "quantized"]
DEPTHS = ["10", "90"]
SETTINGS = {"caches": CACHES, "depths": DEPTHS, "length": 640, "sinks": 4, "window": 256}
TASK = Task("memory", "recall", SETTINGS)


def _answer(evidence: Evidence, cache: str, depth: str) -> dict[str, Any]:
    """The row of a cache at a depth: they are cache by cache, depth by depth."""
    place = CACHES.index(cache) * len(DEPTHS) + DEPTHS.index(depth)
    return evidence.rows(TASK.name, "answers")[place]


def _says_it(evidence: Evidence, cache: str, depth: str) -> bool:
    code = str(evidence.results[TASK.name].settings["code"])
    return code in str(_answer(evidence, cache, depth)["answer"])


def _ppl(evidence: Evidence, cache: str) -> float:
    return float(evidence.rows(TASK.name, "fluency")[CACHES.index(cache)]["ppl_document"])


def _fluent(evidence: Evidence) -> Truth:
    ratio = _ppl(evidence, "sinks") / _ppl(evidence, "full")
    return binned(ratio, (1.05, 1.5), ("same", "worse", "collapse"))


def _facts(evidence: Evidence) -> Facts:
    result = evidence.results[TASK.name]
    told = {
        "code": str(result.settings["code"]),
        "length": format_count(result.settings["length"]),
        "window": format_count(result.settings["window"]),
        "grows": format_share(_ppl(evidence, "sinks") / _ppl(evidence, "full") - 1),
    }
    for cache in CACHES:
        told[f"{cache}_ppl"] = f"{_ppl(evidence, cache):.2f}"
        for depth in DEPTHS:
            row = _answer(evidence, cache, depth)
            told[f"{cache}_{depth}"] = format_share(row["probability"])
            told[f"{cache}_{depth}_said"] = " ".join(str(row["answer"]).split()) or "–"
    return told


LESSON = Lesson(
    key="memory",
    tasks=(TASK,),
    questions=(
        Choice("fluent", ("same", "worse", "collapse"), _fluent),
        Choice("early", ("yes", "no"), lambda evidence: yes_no(_says_it(evidence, "sinks", "10"))),
        Choice("packed", ("yes", "no"), lambda evidence: yes_no(_says_it(evidence, "quantized", "10"))),
    ),
    figures=((TASK.name, "probability"), (TASK.name, "mass")),
    tables=((TASK.name, "answers"), (TASK.name, "fluency")),
    facts=_facts,
    given=_facts,
)
