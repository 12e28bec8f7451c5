"""What an experiment measured, opened in the Run tab: fields, label, and whose result it is."""

from __future__ import annotations

import json
from types import SimpleNamespace

import gradio as gr
import pytest

from kvviz.config import CacheConfig, LayerOverride, Middle
from kvviz.experiment import LabResult
from kvviz.quant_config import QuantConfig
from kvviz.ui import form, lab_views
from kvviz.ui.lab_runs import LabRun
from kvviz.ui.opening import N_FILLED, OpenHandlers
from kvviz.ui.page import build_app
from tests.builders import make_record
from tests.figures.test_lab_quality_figures import make_result

INT2 = QuantConfig.parse("int2:token:g16:minmax")
CACHE = CacheConfig(
    0, 16, Middle.QUANTIZE, 32, INT2, INT2, overrides=(LayerOverride(1, INT2, QuantConfig()),)
)


@pytest.fixture
def opened(make_context):
    context = make_context()
    run = LabRun("one", "quality", "tiny", {})
    run.result = LabResult(
        "quality", {}, make_record(8, 4).model, "", "", {}, configurations={"two bits": CACHE.to_dict()}
    )
    context.lab_runs.add(run)
    return OpenHandlers(context), run.id


def asking(session: str = "one"):
    return SimpleNamespace(session_hash=session)


def test_fields_are_the_configuration_and_the_tab_is_run(opened):
    handlers, run_id = opened
    filled = handlers.open(asking(), "tiny", "full", run_id, "two bits")
    assert len(filled) == N_FILLED
    assert form.read_cache(filled[: len(form.CACHE_FIELDS)]) == CACHE
    label, accordion, tabs = filled[len(form.CACHE_FIELDS) :]
    assert "custom" in json.loads(label)["text"]
    assert accordion.open is True
    assert tabs.selected == "run"


def test_a_clicked_point_does_the_same(opened):
    handlers, run_id = opened
    event = SimpleNamespace(point="two bits")
    by_click = handlers.pick(asking(), event, "tiny", "full", run_id)
    by_list = handlers.open(asking(), "tiny", "full", run_id, "two bits")
    assert by_click[: N_FILLED - 2] == by_list[: N_FILLED - 2]


@pytest.mark.parametrize(("session", "name"), [("one", "no such"), ("one", None), ("two", "two bits")])
def test_nothing_happens_for_an_unknown_name_or_somebody_else(opened, session, name):
    handlers, run_id = opened
    assert handlers.open(asking(session), "tiny", "full", run_id, name) == [gr.skip()] * N_FILLED


def test_a_list_of_what_can_be_opened(opened):
    handlers, run_id = opened
    choice, button = handlers.offer(asking(), run_id)
    assert [name for name, _ in choice.choices] == ["two bits"]
    assert (choice.value, button.interactive) == ("two bits", True)
    choice, button = handlers.offer(asking("two"), run_id)
    assert (choice.choices, button.interactive) == ([], False)


def test_points_are_offered_only_where_there_is_something_to_open():
    result = make_result()
    assert "points" not in lab_views.plots(result)[0]
    result.configurations["a"] = CACHE.to_dict()
    assert lab_views.plots(result)[0]["points"] is True


def test_list_button_and_click_are_wired(make_context):
    demo = build_app(make_context())
    names = {(fn.name, target[1]) for fn in demo.fns.values() for target in fn.targets}
    assert {("open", "click"), ("pick", "click"), ("offer", "change")} <= names
