"""Results of the laboratory with made-up numbers: just what a lesson reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.experiment import LabResult, Table, table
from kvviz.lessons import Evidence, Task
from tests.builders import make_facts


def made_table(rows: list[dict[str, Any]]) -> Table:
    """Columns as the first row has them; units do not matter here."""
    return table([(key, "norm") for key in rows[0]], [list(row.values()) for row in rows])


def made_result(task: Task, tables: dict[str, list[dict[str, Any]]], **more: Any) -> LabResult:
    """A result of ``task``."""
    arrays = {name: np.asarray(values) for name, values in more.pop("arrays", {}).items()}
    return LabResult(
        experiment=task.experiment,
        settings={"code": 7294, **task.settings},
        model=make_facts(),
        text_sha256="0" * 64,
        finding="made",
        tables={name: made_table(rows) for name, rows in tables.items()},
        arrays=arrays,
        **more,
    )


def eviction_evidence(task: Task, full: float, by_sinks: dict[int, float], nll: Any = None) -> Evidence:
    """Perplexities by number of sinks; ``nll`` ``(C, rows)`` with full precision first."""
    rows = [
        {"configuration": str(sinks), "sinks": sinks, "ppl": ppl, "kl": 0.5, "top1": 0.7, "cache_bytes": 100}
        for sinks, ppl in ((None, full), *by_sinks.items())
    ]
    curves = np.zeros((len(rows), 639)) if nll is None else nll
    marks = {"sinks": [None, *by_sinks], "leaves_at": task.settings["budget"]}
    result = made_result(task, {"configurations": rows}, arrays={"nll": curves}, marks=marks)
    return Evidence({task.name: result})


def caches_evidence(task: Task, rows: dict[str, dict[str, Any]], full_bytes: int = 1000) -> Evidence:
    """One row a cache of the task, in its order, with what is not given filled up."""
    usual = {
        "cache_bytes": 500, "device_bytes": 500, "host_bytes": 0, "of_full": 0.5, "pair_bits": 6.25,
        "cache_bits": 8.0, "ppl": 10.0, "kl": 0.01, "top1": 0.9,
    }  # fmt: skip
    made = [{"scheme_name": name} | usual | rows.get(name, {}) for name in task.settings["caches"]]
    marks = {"full_bytes": full_bytes}
    return Evidence({task.name: made_result(task, {"caches": made}, marks=marks)})
