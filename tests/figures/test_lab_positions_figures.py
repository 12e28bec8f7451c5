"""The positions figures draw what was measured, and mark the trained context."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.experiment import LabResult, table
from kvviz.figures.lab import lab_panels
from tests.builders import make_record


def make_result(length: int) -> LabResult:
    rows = np.arange(0, length - 1, 10)
    series = np.stack([np.full(len(rows), 2.0), np.full(len(rows), 4.0)])
    return LabResult(
        experiment="positions",
        settings={"modes": ["in_cache", "wrong"], "length": length},
        model=make_record(8, 4).model,
        text_sha256="",
        finding="",
        tables={"modes": table([("mode", "text")], [])},
        arrays={
            "row": rows,
            "nll": series,
            "rolling_nll": series,
            "held_at": np.array([256, length]),
            "held_bytes": np.array([[1 << 20, 1 << 20], [1 << 21, 1 << 21]]),
        },
        marks={"modes": ["in", "wrong"], "context": 512, "sample": 8, "chunk": 256, "rolling": 4},
    )


@pytest.mark.parametrize(("length", "marked"), [(700, [512]), (400, [])])
def test_lines_and_the_trained_context(length, marked):
    lines, memory = lab_panels(make_result(length))
    assert [trace["name"] for trace in lines.payload["data"]] == ["in", "wrong"]
    assert [shape["x0"] for shape in lines.payload["layout"].get("shapes", [])] == marked
    assert "8 of every 256" in lines.payload["layout"]["yaxis"]["title"]["text"]
    assert memory.key == "memory"
    assert memory.payload["data"][1]["customdata"] == ["2.00 MiB", "2.00 MiB"]
