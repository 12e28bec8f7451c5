"""The eviction figures draw what was measured, and mark where the first token leaves."""

from __future__ import annotations

import numpy as np

from kvviz.experiment import LabResult, table
from kvviz.figures.lab import lab_panels
from kvviz.figures.lab_eviction import draw_excess
from tests.builders import make_record

NAMES = ["full precision", "window only", "4 sinks + window"]


def make_result(rows: int = 40, leaves_at: int = 10) -> LabResult:
    series = np.stack([np.full(rows, level) for level in (2.0, 3.0, 2.1)])
    columns = [("configuration", "text"), ("ppl", "ppl"), ("kl", "nats"), ("top1", "share")]
    values = [(NAMES[0], 10.0, 0.0, 1.0), (NAMES[1], 22.5, 0.7, 0.6), (NAMES[2], 10.5, 0.1, 0.9)]
    return LabResult(
        experiment="eviction",
        settings={},
        model=make_record(8, 4).model,
        text_sha256="",
        finding="",
        tables={"configurations": table(columns, values)},
        arrays={"nll": series, "rolling_nll": series},
        marks={
            "configurations": NAMES,
            "sinks": [None, 0, 4],
            "leaves_at": leaves_at,
            "skip": 5,
            "rolling": 8,
        },
    )


def test_a_line_a_configuration_and_the_mark():
    lines, excess, bars = lab_panels(make_result())
    assert (lines.key, excess.key, bars.key) == ("rolling", "excess", "ppl")
    assert [trace["name"] for trace in excess.payload["data"]] == NAMES[1:]
    assert [shape["x0"] for shape in excess.payload["layout"]["shapes"]] == [10]
    assert [trace["name"] for trace in lines.payload["data"]] == NAMES
    assert len({(t["line"]["color"], t["line"]["dash"]) for t in lines.payload["data"]}) == 3
    assert [shape["x0"] for shape in lines.payload["layout"]["shapes"]] == [10]
    assert "row 10" in lines.payload["layout"]["annotations"][0]["text"]
    assert bars.payload["data"][0]["text"] == ["10.00", "22.50", "10.50"]


def test_no_mark_where_nothing_leaves():
    lines, *_ = lab_panels(make_result(leaves_at=40))
    assert not lines.payload["layout"].get("shapes")


def test_the_excess_is_what_lies_above_full_precision():
    figure = draw_excess(make_result())
    assert [round(float(trace.y[3]), 4) for trace in figure.data] == [1.0, 0.1]
