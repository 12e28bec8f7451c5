"""What a KV cache saves: work, not words."""

from __future__ import annotations

import numpy as np

from kvviz.lessons.lesson import Choice, Estimate, Evidence, Facts, Lesson, Task, Truth, binned, yes_no
from kvviz.units import format_count, format_ms, format_ratio

TASK = Task("saves", "saves", {"prompt_tokens": 128, "new_tokens": 8})


def _fed(evidence: Evidence) -> tuple[int, int]:
    """Tokens that went through the model, with a cache and without."""
    cached, anew = evidence.results[TASK.name].arrays["fed"].sum(1).tolist()
    return int(cached), int(anew)


def _ms(evidence: Evidence) -> tuple[float, float]:
    """Median of a token after the first, with a cache and without."""
    cached, anew = np.median(evidence.results[TASK.name].arrays["ms"][:, 1:], axis=1).tolist()
    return float(cached), float(anew)


def _time(evidence: Evidence) -> Truth:
    cached, anew = _ms(evidence)
    return binned(anew / cached, (1.5, 3, 30), ("same", "twice", "tens", "hundreds"))


def _same(evidence: Evidence) -> Truth:
    return yes_no(bool(evidence.results[TASK.name].arrays["same"].all()))


def _facts(evidence: Evidence) -> Facts:
    result = evidence.results[TASK.name]
    (cached, anew), (ms_cached, ms_anew) = _fed(evidence), _ms(evidence)
    return {
        "prompt": format_count(result.settings["prompt_tokens"]),
        "new": format_count(result.settings["new_tokens"]),
        "cached": format_count(cached),
        "anew": format_count(anew),
        "times": format_ratio(anew / cached),
        "token_times": format_ratio(float(np.median(result.arrays["fed"][1, 1:]))),
        "ms_cached": format_ms(ms_cached),
        "ms_anew": format_ms(ms_anew),
        "ms_times": format_ratio(ms_anew / ms_cached),
        "difference": f"{result.marks['largest_logit_difference']:.1g}",
    }


LESSON = Lesson(
    key="saves",
    tasks=(TASK,),
    questions=(
        Estimate("work", "count", lambda evidence: _fed(evidence)[1], right=0.03, near=0.3),
        Choice("time", ("same", "twice", "tens", "hundreds"), _time),
        Choice("words", ("yes", "no"), _same),
    ),
    figures=((TASK.name, "work"), (TASK.name, "time")),
    tables=((TASK.name, "saves"),),
    facts=_facts,
    given=_facts,
)
