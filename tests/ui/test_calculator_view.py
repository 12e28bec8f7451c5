"""Fields of the Calculator tab to views, without a page."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvviz.presets import preset, preset_label, preset_names
from kvviz.ui import calculator, form
from kvviz.ui.context import Presets
from kvviz.ui.tabs.calculator import OPENING

PRESETS = Presets(preset_names(), preset_label, preset)


def values(name: str = "k8v4", cache: dict[str, Any] | None = None, **place: Any) -> list[Any]:
    fields = dict(zip(form.CACHE_FIELDS, form.cache_fields(preset(name)), strict=True))
    return [*(OPENING | place).values(), *(fields | (cache or {})).values()]


def shown(given: list[Any]) -> list[dict[str, Any]]:
    return [json.loads(view) for view in calculator.views(given, PRESETS)]


def test_fields_become_the_question():
    question = calculator.read_question(
        values(model="Qwen3-8B", gpu_gib=12.5, weights="4", context_tokens=100.0, users=2, page_size=1)
    )
    assert question.shape.name == "Qwen3-8B"
    assert question.cache == preset("k8v4")
    assert (question.gpu_gib, question.weights_bits, question.context_tokens) == (12.5, 4, 100)
    assert (question.users, question.page_size) == (2, 1)
    assert calculator.read_question(values()).weights_bits is None


def test_views_of_an_answer():
    notice, said, fit, over, sums = shown(values())
    assert notice["text"] == ""
    assert len(said["sentences"]) >= 4
    assert {plot["figure"]["layout"]["uirevision"] for plot in (fit, over)} == {"calc-fit", "calc-context"}
    names = [trace["name"] for trace in over["figure"]["data"]]
    assert names[::-1] == ["this cache", *(preset_label(name) for name in calculator.COMPARED)]
    assert all(line["expression"] and line["result"] for line in sums["lines"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (values(context_tokens=None), "context is empty"),
        (values(users=2.5), "users is 2.5"),
        (values(gpu_gib=None), "GPU memory"),
        (values(model="<script>"), "no model"),
        (values(weights="3"), "Weights"),
        (values(cache={"key": "int5:token:g64:absmax"}), "5"),
        (values(cache={"block_size": 0}), "block_size"),
        (values(cache={"overrides": "99:none/none"}), "99"),
    ],
)
def test_a_refusal_is_one_sentence_and_leaves_nothing_stale(given, words):
    notice, said, fit, over, sums = shown(given)
    assert notice["kind"] == "error"
    assert words in notice["text"]
    assert said["sentences"] == sums["lines"] == []
    assert fit["figure"] is over["figure"] is None


def test_claims_have_verdicts():
    claims = calculator.claims_view()["claims"]
    assert len(claims) == 6
    assert {claim["kind"] for claim in claims} == {"right", "wrong", "codes_only"}
