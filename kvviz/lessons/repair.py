"""Four sinks repair it; how few would do?"""

from __future__ import annotations

from kvviz.lessons import eviction
from kvviz.lessons.lesson import Choice, Evidence, Facts, Lesson, Task, Truth, binned
from kvviz.units import format_share

TASK = Task(
    "repair", "eviction",
    {"budget": 260, "sinks": ["0", "1", "4", "8"], "length": 640, "skip": 264, "rolling": 32},
)  # fmt: skip
_COUNTS = (1, 4, 8)
_ENOUGH = 0.9  # of what the best number of sinks wins back
_LEAST_NATS = 0.02  # less damage than this needs no repair


def _won(evidence: Evidence, sinks: int) -> float:
    """Share of the window's damage that ``sinks`` take away; 0 where there is none."""
    lost = eviction.lost_nats(evidence, TASK.name, 0)
    return 1 - eviction.lost_nats(evidence, TASK.name, sinks) / lost if lost > _LEAST_NATS else 0.0


def _four(evidence: Evidence) -> Truth:
    return binned(_won(evidence, 4), (0.1, 0.6), ("nothing", "half", "most"))


def _fewest(evidence: Evidence) -> Truth:
    if eviction.lost_nats(evidence, TASK.name, 0) <= _LEAST_NATS:
        return Truth("none", ("none",))
    won = {sinks: _won(evidence, sinks) for sinks in _COUNTS}
    fewest = next(str(sinks) for sinks in _COUNTS if won[sinks] >= _ENOUGH * max(won.values()))
    return Truth(fewest, (fewest,), won[int(fewest)])


def _facts(evidence: Evidence) -> Facts:
    rows = {n: eviction.configuration(evidence, TASK.name, n) for n in _COUNTS}
    told = {f"ppl_{n}": f"{row['ppl']:.2f}" for n, row in rows.items()}
    told |= {f"won_{n}": format_share(_won(evidence, n)) for n in _COUNTS}
    told["kl_4"] = f"{rows[4]['kl']:.3f}"
    told["kept_window"] = str(evidence.results[TASK.name].settings["budget"] - 4)
    return eviction.facts(evidence, TASK.name) | told


LESSON = Lesson(
    key="repair",
    tasks=(TASK,),
    questions=(
        Choice("four", ("nothing", "half", "most"), _four),
        Choice("fewest", ("1", "4", "8", "none"), _fewest),
    ),
    figures=((TASK.name, "excess"), (TASK.name, "ppl")),
    tables=((TASK.name, eviction.TABLE),),
    facts=_facts,
    given=_facts,
)
