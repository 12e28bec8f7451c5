"""The Pareto plot: every point where it was measured, the front joined, names carried for a click."""

from __future__ import annotations

import base64

import numpy as np

from kvviz.experiment import LabResult, table
from kvviz.figures.lab import lab_panels
from kvviz.figures.lab_quality import placed
from tests.builders import make_record

LABELS = ["eight", "<four>", "bad four", "two"]
BITS, KL = np.array([8.25, 4.5, 5.0, 2.5]), np.array([1e-4, 1e-2, 2e-2, 0.5])


def numbers(value) -> list[float]:
    """Plain numbers out of what plotly is handed."""
    if isinstance(value, dict):
        return np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"]).tolist()
    return list(value)


def make_result(kl=KL) -> LabResult:
    columns = [("pair_bits", "norm"), ("kl", "nats"), ("pair_key", "text"), ("pair_value", "text")]
    rows = [(bits, loss, "k", "v") for bits, loss in zip(BITS.tolist(), kl.tolist(), strict=True)]
    return LabResult(
        experiment="quality",
        settings={},
        model=make_record(8, 4).model,
        text_sha256="",
        finding="",
        tables={"quality": table(columns, rows)},
        arrays={"bits": BITS, "kl": kl, "front": np.array([True, True, False, True])},
        marks={"schemes": ["a", "<b>", "c", "d"], "labels": LABELS},
    )


def drawn(result: LabResult):
    (panel,) = lab_panels(result)
    assert panel.key == "pareto"
    return panel.payload


def test_points_and_front_are_the_numbers():
    payload = drawn(make_result())
    front, points = payload["data"]
    assert payload["layout"]["yaxis"]["type"] == "log"
    assert points["customdata"] == LABELS
    assert points["text"][1] == "&lt;b&gt;"
    assert "&lt;four&gt;" in points["hovertemplate"][1]
    assert "4.5 effective bits" in points["hovertemplate"][1]
    assert points["marker"]["symbol"] == ["diamond", "diamond", "circle", "diamond"]
    assert "customdata" not in front
    assert numbers(points["x"]) == BITS.tolist()
    assert numbers(points["y"]) == KL.tolist()
    assert numbers(front["x"]) == [2.5, 4.5, 8.25]
    assert numbers(front["y"]) == [0.5, 1e-2, 1e-4]


def test_a_kl_of_nothing_still_has_a_place():
    points = drawn(make_result(np.array([-1e-12, 1e-2, 2e-2, 0.5])))["data"][1]
    assert min(numbers(points["y"])) > 0


def test_words_of_close_points_keep_apart():
    bits, kl = np.array([4.5, 4.5, 8.0]), np.array([1e-2, 1.1e-2, 1e-4])
    assert placed(bits, kl) == ["bottom right", "top right", "middle right"]
