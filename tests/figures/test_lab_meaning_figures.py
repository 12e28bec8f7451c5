"""Figures of "Does it need meaning?" and of the middle: what is drawn is what was measured."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from kvviz.experiment import LabResult, table
from kvviz.figures.lab import lab_panels
from tests.builders import make_facts


def numbers(value):
    """A typed array of a payload, or a plain list."""
    if isinstance(value, list):
        return np.asarray(value)
    shape = [int(n) for n in value.get("shape", "-1").split(",")]
    return np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"]).reshape(shape)


def made(experiment, tables, arrays, marks):
    return LabResult(
        experiment=experiment, settings={}, model=make_facts(), text_sha256="", finding="", tables=tables,
        arrays=arrays, marks=marks,
    )  # fmt: skip


@pytest.fixture
def meaning():
    draw = np.random.default_rng(0)
    variants = ["unchanged", "newlines"]
    columns = [("variant", "text"), ("ppl_keep", "ppl"), ("ppl_streaming", "ppl")]
    return made(
        "meaning",
        {"variants": table(columns, [["unchanged", 11.0, 12.5], ["newlines", 11.5, 12.0]])},
        {"position_mass": draw.uniform(0, 0.4, (2, 8)), "head_mass": draw.uniform(0, 1, (2, 2, 4))},
        {
            "variants": variants,
            "labels": {"unchanged": [*"abcdefg", "<b>"], "newlines": [*"⏎⏎⏎⏎efgh"]},
            "from_row": 128,
        },
    )


def test_bars_of_every_variant_stand_on_their_tokens(meaning):
    panels = lab_panels(meaning)
    assert [panel.key for panel in panels] == ["positions", "perplexity", "heads"]
    payload = panels[0].payload
    for index, trace in enumerate(payload["data"]):
        np.testing.assert_array_equal(numbers(trace["y"]), meaning.arrays["position_mass"][index])
    assert payload["layout"]["xaxis"]["ticktext"][-1] == "&lt;b&gt;"
    assert payload["layout"]["xaxis2"]["ticktext"][:5] == ["⏎", "⏎", "⏎", "⏎", "e"]
    assert [a["text"] for a in payload["layout"]["annotations"]] == ["unchanged", "newlines"]
    assert payload["layout"]["yaxis"]["range"] == payload["layout"]["yaxis2"]["range"]


def test_perplexities_of_both_caches(meaning):
    keep, streaming = lab_panels(meaning)[1].payload["data"]
    assert keep["x"] == ["unchanged", "newlines"]
    assert keep["y"] == [11.0, 11.5]
    assert streaming["y"] == [12.5, 12.0]
    assert streaming["name"] == "4 sinks + window 124, the rest evicted"


def test_heads_of_every_variant_share_a_scale(meaning):
    payload = lab_panels(meaning)[2].payload
    for index, trace in enumerate(payload["data"]):
        np.testing.assert_array_equal(numbers(trace["z"]), meaning.arrays["head_mass"][index])
    assert payload["layout"]["coloraxis"]["cmax"] == 1


def test_the_middle_by_head_by_layer_and_by_row():
    mass = np.random.default_rng(0).dirichlet([1, 1, 1], (2, 4)).transpose(2, 0, 1)
    by_row = np.random.default_rng(1).dirichlet([1, 1, 1], 5).T
    marks = {"parts": ["sink", "middle", "window"], "first_row": 13}
    panels = lab_panels(made("middle", {}, {"mass": mass, "by_row": by_row}, marks))
    assert [panel.key for panel in panels] == ["heads", "layers", "rows"]
    (heat,) = panels[0].payload["data"]
    np.testing.assert_array_equal(numbers(heat["z"]), mass[1])
    bars = [numbers(trace["y"]) for trace in panels[1].payload["data"]]
    np.testing.assert_allclose(bars, mass.mean(2))
    np.testing.assert_allclose(sum(bars), 1)
    for trace, shares in zip(panels[2].payload["data"], by_row, strict=True):
        np.testing.assert_array_equal(numbers(trace["x"]), [13, 14, 15, 16, 17])
        np.testing.assert_array_equal(numbers(trace["y"]), shares)
