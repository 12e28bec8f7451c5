"""A window without sinks collapses, and one can say at which token."""

from __future__ import annotations

from kvviz.lessons import eviction
from kvviz.lessons.lesson import Choice, Evidence, Facts, Lesson, Task, Truth, binned

TASK = Task("window", "eviction", {"budget": 260, "sinks": ["0"], "length": 640, "skip": 264, "rolling": 32})
_SOON_ROWS = 64
#: mean NLL above full precision (nats) that is no more than rounding or chance
_NOTHING_NATS = 0.02


def _damage(evidence: Evidence) -> Truth:
    rows = (eviction.configuration(evidence, TASK.name, n)["ppl"] for n in (None, 0))
    full, window = rows
    return binned(window / full, (1.03, 1.3), ("nothing", "little", "collapse"))


def _excesses(evidence: Evidence) -> tuple[float, float, float]:
    """Nats above full precision: before token 0 leaves, in the rows after that, in the last rows."""
    result = evidence.results[TASK.name]
    leaves, rows = result.marks["leaves_at"], result.arrays["nll"].shape[1]
    before = eviction.excess_after(evidence, TASK.name, 0, 0, leaves)
    soon = eviction.excess_after(evidence, TASK.name, 0, leaves, _SOON_ROWS)
    late = eviction.excess_after(evidence, TASK.name, 0, max(leaves, rows - _SOON_ROWS))
    return before, soon, late


def _when(evidence: Evidence) -> Truth:
    before, soon, late = _excesses(evidence)
    whole = eviction.excess_after(evidence, TASK.name, 0, evidence.results[TASK.name].marks["leaves_at"])
    if max(before, soon, late, whole) < _NOTHING_NATS:
        return Truth("never", ("never",), whole)
    if before >= whole / 2:
        return Truth("start", ("start",), before)
    best = "leaves" if soon >= whole / 2 else "slowly"
    return Truth(best, (best,), soon)


def _facts(evidence: Evidence) -> Facts:
    before, soon, late = _excesses(evidence)
    return eviction.facts(evidence, TASK.name) | {
        "leaves_at": str(evidence.results[TASK.name].marks["leaves_at"]),
        "rows": str(_SOON_ROWS),
        "before": f"{before:.2f}",
        "soon": f"{soon:.2f}",
        "late": f"{late:.2f}",
    }


LESSON = Lesson(
    key="window",
    tasks=(TASK,),
    questions=(
        Choice("damage", ("nothing", "little", "collapse"), _damage),
        Choice("when", ("start", "leaves", "slowly", "never"), _when),
    ),
    figures=((TASK.name, "rolling"), (TASK.name, "ppl")),
    tables=((TASK.name, eviction.TABLE),),
    facts=_facts,
    given=_facts,
)
