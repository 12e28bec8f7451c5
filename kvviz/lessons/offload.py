"""Offload moves, it does not shrink."""

from __future__ import annotations

from typing import Any

from kvviz.lessons.lesson import Choice, Evidence, Facts, Lesson, Task, Truth, binned
from kvviz.units import format_bytes, format_count, format_share

CACHES = ["full", "k8v4", "k8v4-host"]
TASK = Task("offload", "caches", {"caches": CACHES, "window": 32, "length": 320, "skip": 200})


def _row(evidence: Evidence, cache: str) -> dict[str, Any]:
    return evidence.rows(TASK.name, "caches")[CACHES.index(cache)]


def _total(evidence: Evidence) -> Truth:
    kept, moved = (_row(evidence, name)["cache_bytes"] for name in ("k8v4", "k8v4-host"))
    return binned(moved / kept, (0.9, 1.1), ("less", "same", "more"))


def _device(evidence: Evidence) -> Truth:
    kept, moved = (_row(evidence, name)["device_bytes"] for name in ("k8v4", "k8v4-host"))
    return binned(moved / kept, (0.1, 0.9), ("nothing", "part", "all"))


def _words(evidence: Evidence) -> Truth:
    kept, moved = (_row(evidence, name) for name in ("k8v4", "k8v4-host"))
    same = all(kept[key] == moved[key] for key in ("kl", "ppl", "top1"))
    best = "same" if same else "worse" if moved["kl"] > kept["kl"] else "better"
    return Truth(best, (best,), moved["kl"] - kept["kl"])


def _facts(evidence: Evidence) -> Facts:
    full, kept, moved = (_row(evidence, name) for name in CACHES)
    return {
        "tokens": format_count(evidence.results[TASK.name].settings["length"]),
        "full": format_bytes(full["cache_bytes"]),
        "kept": format_bytes(kept["cache_bytes"]),
        "moved": format_bytes(moved["cache_bytes"]),
        "kept_device": format_bytes(kept["device_bytes"]),
        "device": format_bytes(moved["device_bytes"]),
        "host": format_bytes(moved["host_bytes"]),
        "device_share": format_share(moved["device_bytes"] / kept["device_bytes"]),
        "kl": f"{kept['kl']:.6f}",
        "moved_kl": f"{moved['kl']:.6f}",
    }


LESSON = Lesson(
    key="offload",
    tasks=(TASK,),
    questions=(
        Choice("total", ("less", "same", "more"), _total),
        Choice("device", ("nothing", "part", "all"), _device),
        Choice("words", ("same", "worse", "better"), _words),
    ),
    figures=((TASK.name, "bytes"),),
    tables=((TASK.name, "caches"),),
    facts=_facts,
    given=_facts,
)
