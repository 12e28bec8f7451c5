"""Figures of "Is there a sink?": what is drawn is what was measured."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from kvviz.experiment import LabResult, table
from kvviz.figures.lab import lab_panels
from tests.builders import make_facts

KINDS = ["natural", "repeated"]
TOKENS = 5


@pytest.fixture
def result():
    draw = np.random.default_rng(0)
    norms = {f"{side}_norm": draw.uniform(1, 9, (2, 2, TOKENS)) for side in ("hidden", "key", "value")}
    rates = [[kind, k, 0.1 * k + s, 0.01 * k, 0.05] for s, kind in enumerate(KINDS) for k in (1, 2, 3, 4)]
    columns = [("kind", "text"), ("k", "count"), ("sink_rate", "share"), ("mean_weight", "share")]
    return LabResult(
        experiment="sink",
        settings={},
        model=make_facts(),
        text_sha256="",
        finding="",
        tables={"rates": table([*columns, ("even_weight", "share")], rates)},
        arrays={"mass": draw.uniform(0, 1, (2, 2, 4)), "peak": draw.uniform(1, 900, (2, 2, TOKENS)), **norms},
        marks={
            "kinds": KINDS,
            "epsilon": 0.3,
            "labels": {kind: ["a", "⏎", "<b>", "c", "d"] for kind in KINDS},
        },
    )


def numbers(value):
    """A typed array of a payload."""
    shape = [int(n) for n in value.get("shape", "-1").split(",")]
    return np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"]).reshape(shape)


def test_three_figures_in_order(result):
    assert [panel.key for panel in lab_panels(result)] == ["mass", "rate", "norms"]


def test_masses_share_one_scale_from_0_to_1(result):
    payload = lab_panels(result)[0].payload
    for s, trace in enumerate(payload["data"]):
        np.testing.assert_array_equal(numbers(trace["z"]), result.arrays["mass"][s])
        assert trace["coloraxis"] == "coloraxis"
    assert (payload["layout"]["coloraxis"]["cmin"], payload["layout"]["coloraxis"]["cmax"]) == (0, 1)
    assert [a["text"] for a in payload["layout"]["annotations"]] == ["natural text", "one token repeated"]


def test_bars_are_the_rates_and_the_axis_says_epsilon(result):
    payload = lab_panels(result)[1].payload
    assert [trace["name"] for trace in payload["data"]] == ["natural text", "one token repeated"]
    assert payload["data"][0]["y"] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert "30.0 %" in payload["layout"]["yaxis"]["title"]["text"]


def test_norms_of_the_first_token_beside_the_median_of_the_others(result):
    traces = lab_panels(result)[2].payload["data"]
    lines = {
        (t["legendgroup"], t.get("yaxis", "y")): numbers(t["y"]) for t in traces if t["type"] == "scatter"
    }
    assert len(lines) == 12
    key = result.arrays["key_norm"]
    np.testing.assert_allclose(lines["natural.first", "y2"], key[0, :, 0])
    np.testing.assert_allclose(lines["repeated.others", "y2"], np.median(key[1, :, 1:], axis=-1))
    heat = traces[-1]
    np.testing.assert_allclose(10 ** numbers(heat["z"]), result.arrays["peak"][0])
    assert heat["customdata"][0][2][0] == "&lt;b&gt;"


def test_a_text_of_one_token_has_no_others(result):
    for name in ("hidden_norm", "key_norm", "value_norm", "peak"):
        result.arrays[name] = result.arrays[name][..., :1]
    result.marks["labels"] = {kind: ["a"] for kind in KINDS}
    traces = lab_panels(result)[2].payload["data"]
    assert {t["legendgroup"] for t in traces if t["type"] == "scatter"} == {"natural.first", "repeated.first"}
