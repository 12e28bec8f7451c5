"""The recall figures: groups of bars by depth, the numbers as they were measured."""

from __future__ import annotations

import numpy as np

from kvviz.experiment import LabResult
from kvviz.figures.lab import lab_panels
from tests.builders import make_record


def test_a_bar_for_each_cache_at_each_depth():
    probability = np.array([[0.9, 0.8], [0.001, 0.75]])
    result = LabResult(
        experiment="recall",
        settings={},
        model=make_record(8, 4).model,
        text_sha256="",
        finding="",
        tables={},
        arrays={"probability": probability, "fact_mass": probability / 10, "fact_peak": probability / 2},
        marks={"caches": ["full", "<window>"], "depths": [10, 90]},
    )
    likely, mass = lab_panels(result)
    assert (likely.key, mass.key) == ("probability", "mass")
    assert [trace["x"] for trace in likely.payload["data"]] == [["10 %", "90 %"]] * 2
    assert [trace["text"] for trace in likely.payload["data"]] == [["90.0%", "80.0%"], ["0.1%", "75.0%"]]
    assert mass.payload["data"][0]["text"] == ["9.00%", "8.00%"]
    assert likely.payload["data"][1]["name"] == "&lt;window&gt;"
