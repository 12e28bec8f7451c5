"""What the two lessons on eviction read off a run alike. Knows the experiment's table and arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kvviz.lessons.lesson import Evidence, Facts
from kvviz.units import format_bytes, format_count, format_share

TABLE = "configurations"


def configuration(evidence: Evidence, task: str, sinks: int | None) -> dict[str, Any]:
    """The row with so many sinks; None is full precision."""
    return next(row for row in evidence.rows(task, TABLE) if row["sinks"] == sinks)


def lost_nats(evidence: Evidence, task: str, sinks: int) -> float:
    """How much worse than full precision, in nats a token."""
    full, tested = (configuration(evidence, task, n)["ppl"] for n in (None, sinks))
    return math.log(tested / full)


def excess_after(evidence: Evidence, task: str, sinks: int, first: int, rows: int | None = None) -> float:
    """Mean NLL above full precision from row ``first`` on, of ``rows`` rows or all that are left."""
    result = evidence.results[task]
    place = result.marks["sinks"].index(sinks)
    over = result.arrays["nll"][place] - result.arrays["nll"][0]
    return float(np.mean(over[first : None if rows is None else first + rows]))


def facts(evidence: Evidence, task: str) -> Facts:
    """Settings, and the numbers of full precision and of the window alone."""
    result = evidence.results[task]
    full, window = (configuration(evidence, task, n) for n in (None, 0))
    return {
        "budget": format_count(result.settings["budget"]),
        "length": format_count(result.settings["length"]),
        "full": f"{full['ppl']:.2f}",
        "window": f"{window['ppl']:.2f}",
        "window_kl": f"{window['kl']:.3f}",
        "window_top1": format_share(window["top1"]),
        "grows": format_share(window["ppl"] / full["ppl"] - 1),
        "full_bytes": format_bytes(full["cache_bytes"]),
        "window_bytes": format_bytes(window["cache_bytes"]),
    }
