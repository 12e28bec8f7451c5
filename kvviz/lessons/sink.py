"""Find the sink: where an average head's attention goes, and whether the text has anything to do with it."""

from __future__ import annotations

from typing import Any

from kvviz.lessons.lesson import Choice, Estimate, Evidence, Facts, Lesson, Task, Truth, binned
from kvviz.units import format_count, format_share

TASK = Task("sink", "sink", {"kinds": ["natural", "repeated"], "tokens": 64, "texts": 4})


def _first(evidence: Evidence, kind: str) -> dict[str, Any]:
    """The row of the first position."""
    return next(
        row for row in evidence.rows(TASK.name, "rates") if row["kind"] == kind and row["k"] == 1
    )  # fmt: skip


def _weight(evidence: Evidence) -> float:
    return float(_first(evidence, "natural")["mean_weight"])


def _heads(evidence: Evidence) -> Truth:
    return binned(_first(evidence, "natural")["sink_rate"], (0.1, 0.5), ("few", "some", "most"))


def _repeated(evidence: Evidence) -> Truth:
    natural, repeated = (_first(evidence, kind)["sink_rate"] for kind in ("natural", "repeated"))
    if not natural:
        return binned(repeated, (0.05, 0.5), ("gone", "weaker", "stays"))
    return binned(repeated / natural, (0.1, 0.7), ("gone", "weaker", "stays"))


def _facts(evidence: Evidence) -> Facts:
    natural, repeated = (_first(evidence, kind) for kind in ("natural", "repeated"))
    model = evidence.results[TASK.name].model
    return {
        "tokens": format_count(TASK.settings["tokens"]),
        "even": format_share(natural["even_weight"]),
        "weight": format_share(natural["mean_weight"]),
        "rate": format_share(natural["sink_rate"]),
        "repeated_rate": format_share(repeated["sink_rate"]),
        "repeated_weight": format_share(repeated["mean_weight"]),
        "heads": format_count(model.n_layers * model.n_heads),
        "epsilon": format_share(evidence.results[TASK.name].marks["epsilon"]),
    }


LESSON = Lesson(
    key="sink",
    tasks=(TASK,),
    questions=(
        Estimate("weight", "share", _weight, right=0.08, near=0.2),
        Choice("heads", ("few", "some", "most"), _heads),
        Choice("repeated", ("stays", "weaker", "gone"), _repeated),
    ),
    figures=((TASK.name, "mass"), (TASK.name, "rate")),
    tables=((TASK.name, "rates"),),
    facts=_facts,
    given=_facts,
)  # fmt: skip
