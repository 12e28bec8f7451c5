"""The Compare tab without a browser: form to comparison, frames, stop, marks, and one more or one less."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import gradio as gr
import pytest

from kvviz.comparison_request import MAX_CONFIGURATIONS, TextSlice
from kvviz.config import CacheConfig
from kvviz.errors import ConfigError
from kvviz.host import Hosting, Limits
from kvviz.ui import compare_form, form
from kvviz.ui.atlas import SKIP
from kvviz.ui.compare_handlers import N_STREAM_CONTROLS, CompareHandlers
from kvviz.ui.compare_views import MAPS, PANELS, VIEWS
from tests.builders import EVICT, FULL, STACK
from tests.ui.fakes import FakeComparing

REQUEST = {
    "prompt": "hello", "use_chat_template": True, "max_new_tokens": 6, "decoding": "greedy",
    "temperature": None, "top_p": None, "seed": None,
}  # fmt: skip
TEXT = {"text": "code", "start": 0, "length": 10, "skip": 3}
CHOICE = ("0", "1", 0, 0, None, "log")
WHO = SimpleNamespace(session_hash="me")


def inputs(count=2, *, model="tiny", text=TEXT, caches=(FULL, STACK, EVICT, FULL), **request):
    asked = REQUEST | request
    presets = ["full", "full-stack", "full", "full"]
    sides = [v for p, c in zip(presets, caches, strict=True) for v in (p, *form.cache_fields(c))]
    return [model, *asked.values(), *text.values(), count, *sides]


def told(value):
    return None if value is SKIP or value is None else json.loads(value)


def frames(handlers, *, who=WHO, choice=CHOICE, **given):
    pending, _, _ = handlers.prepare(who, *inputs(**given))
    assert pending
    return [
        dict(zip(("run", "stop", "notice", "first", "second", "row", "line", *VIEWS), frame, strict=True))
        for frame in handlers.stream(who, pending, *choice)
    ]


@pytest.fixture
def handlers(make_context):
    return CompareHandlers(make_context())


def test_the_form_says_what_is_asked(make_context):
    model, request = compare_form.read_inputs(inputs(3), make_context())
    assert model == "tiny"
    assert [cache for _, cache in request.configurations] == [FULL, STACK, EVICT]
    assert [label for label, _ in request.configurations] == [
        "the full", "the full-stack", "custom (from the full)",
    ]  # fmt: skip
    assert request.text == TextSlice("code", 0, 10, 3)
    assert (request.prompt, request.max_new_tokens) == ("hello", 6)


def test_no_text_is_scored_when_none_is_chosen(make_context):
    assert compare_form.read_inputs(inputs(text=TEXT | {"text": "none"}), make_context())[1].text is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"model": " "}, "model"),
        ({"text": TEXT | {"length": None}}, "length"),
        ({"text": TEXT | {"skip": 9}}, "skip"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"caches": (FULL, CacheConfig(), STACK, STACK), "decoding": "sampled"}, "temperature"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(handlers, given, says):
    pending, _, line = handlers.prepare(WHO, *inputs(**given))
    assert pending == ""
    assert told(line)["kind"] == "error"
    assert says in told(line)["text"].lower()


def test_a_wrong_field_names_its_configuration(handlers):
    values = inputs(2)
    values[-4 * 11 + 11 + 2] = -1  # B's window
    line = told(handlers.prepare(WHO, *values)[2])
    assert "Configuration B" in line["text"]


def test_an_operator_s_limits_hold(make_context):
    context = make_context()
    object.__setattr__(context, "hosting", Hosting(Limits(max_configurations=2)))
    line = told(CompareHandlers(context).prepare(WHO, *inputs(3))[2])
    assert line["kind"] == "error"


def test_it_streams_texts_and_ends_with_everything(handlers):
    shown = frames(handlers, count=3)
    last = shown[-1]
    assert all(last[name] is not SKIP for name in VIEWS)
    assert told(last["notice"])["kind"] == "info"
    panels = [told(last[name]) for name in PANELS]
    assert [panel.get("letter") for panel in panels] == ["A", "B", "C", None]
    assert panels[3] == {"void": True}
    assert panels[0]["verdict"]
    assert "middle=evict" in panels[2]["settings"]
    numbers = told(last["cmp_numbers"])["tables"][0]
    assert len(numbers["cells"]) == 3
    assert len(numbers["columns"]) == len(numbers["cells"][0]) == len(numbers["sort"][0])
    assert told(last["cmp_quality"])["figure"]["data"]
    assert "A " in told(last["cmp_quality"])["name"]
    assert last["stop"].interactive is False
    assert [letter for letter, _ in last["first"].choices] == ["A", "B", "C"]


def test_progress_of_the_scoring_is_told(make_context):
    shown = frames(CompareHandlers(make_context(comparing=FakeComparing(pause_s=0.12))))
    lines = [told(frame["notice"]) for frame in shown if frame["notice"] is not SKIP]
    assert any(line["fraction"] for line in lines)


def test_a_refusal_of_the_engine_is_told(make_context):
    comparing = FakeComparing(refuse=ConfigError("prompt_empty"))
    shown = frames(CompareHandlers(make_context(comparing=comparing)))
    assert told(shown[-1]["notice"])["kind"] == "error"
    assert all(shown[-1][name] is SKIP for name in VIEWS)


def test_a_failure_keeps_what_was_shown(make_context):
    shown = frames(CompareHandlers(make_context(comparing=FakeComparing(explode_at=9))))
    assert told(shown[-1]["notice"])["kind"] == "error"
    assert told(shown[-1]["cmp_panel_0"])["segments"]["before"]
    assert told(shown[-1]["cmp_quality"])["figure"] is None


def test_a_stop_ends_it_and_shows_what_there_is(make_context):
    context = make_context(comparing=FakeComparing(pause_s=0.05))
    handlers = CompareHandlers(context)
    pending, _, _ = handlers.prepare(WHO, *inputs(max_new_tokens=60))
    stream = handlers.stream(WHO, pending, *CHOICE)
    next(stream)
    handlers.stop(WHO)
    *_, last = stream
    views = dict(zip(VIEWS, last[N_STREAM_CONTROLS:], strict=True))
    run = context.comparisons.get(pending, "me")
    assert {record.status for record in run.snapshot()} == {"stopped"}
    assert run.result.text is None
    assert "not" in json.dumps(told(views["cmp_quality"])["figure"]).lower() or views["cmp_quality"] is SKIP


def test_another_comparison_takes_its_place(make_context):
    context = make_context(comparing=FakeComparing(pause_s=0.02))
    handlers = CompareHandlers(context)
    first, _, _ = handlers.prepare(WHO, *inputs())
    second, _, _ = handlers.prepare(WHO, *inputs())
    assert context.comparisons.get(first, "me").superseded
    done = list(handlers.stream(WHO, second, *CHOICE))
    assert done[-1][0] == second
    assert context.comparisons.get(first, "me") is None


def test_sessions_do_not_mix(make_context):
    context = make_context()
    handlers = CompareHandlers(context)
    shown = frames(handlers)
    run_id = shown[-1]["run"]
    other = SimpleNamespace(session_hash="another")
    assert handlers.look(other, run_id, *CHOICE) == [SKIP] * (1 + len(MAPS))
    assert handlers.jump(1, other, run_id, *CHOICE) == [SKIP] * (4 + len(MAPS))
    assert handlers.look(WHO, run_id, *CHOICE)[0] is not SKIP


def test_a_closed_page_stops_it_and_gives_it_back(make_context):
    context = make_context(comparing=FakeComparing(pause_s=0.02))
    handlers = CompareHandlers(context)
    pending, _, _ = handlers.prepare(WHO, *inputs(max_new_tokens=60))
    stream = handlers.stream(WHO, pending, *CHOICE)
    next(stream)
    run = context.comparisons.get(pending, "me")
    context.comparisons.forget("me")
    stream.close()
    assert run.stop.is_set()
    assert run.wait(10)
    assert len(context.comparisons) == 0


def test_a_mark_leads_to_the_row_that_chose_it(make_context):
    shown = frames(CompareHandlers(context := make_context()), count=3)
    handlers = CompareHandlers(context)
    run_id = shown[-1]["run"]
    first, second, row, line, *maps = handlers.jump(2, WHO, run_id, "0", "1", 1, 3, 2, "linear")
    assert (first, second) == ("0", "2")
    records = context.comparisons.get(run_id, "me").snapshot()
    assert row == min(records[0].rows, records[2].rows) - 1
    assert len(maps) == len(MAPS)
    figures = [told(value)["figure"] for value in maps]
    assert figures[0]["data"][0]["z"] != figures[1]["data"][0]["z"]
    assert "C" in told(line)["text"] or told(line)["text"]
    assert handlers.jump(0, WHO, run_id, *CHOICE)[0] is SKIP
    assert handlers.jump(3, WHO, run_id, *CHOICE)[0] is SKIP


def test_another_layer_is_another_map(handlers):
    run_id = frames(handlers, count=3)[-1]["run"]

    def cells(layer):
        maps = handlers.look(WHO, run_id, "0", "2", layer, 0, None, "log")[1:4]
        return [told(value)["figure"]["data"][0]["z"] for value in maps]

    assert all(a != b for a, b in zip(cells(0), cells(1), strict=True))
    words = told(handlers.look(WHO, run_id, "0", "3", 0, 0, None, "log")[0])["text"]
    assert "D" in words


# -- one more, one less ------------------------------------------------------------------------------


def event_of(demo, trigger, elem_id):
    """The function behind a component's event."""
    for function in demo.fns.values():
        for component, name in function.targets:
            if name == trigger and getattr(demo.blocks.get(component), "elem_id", "") == elem_id:
                return function
    raise AssertionError(elem_id)


def test_one_more_and_one_less(make_context):
    context = make_context()
    with gr.Blocks() as demo:
        rail = compare_form.build_rail(context, gr.Dropdown(["tiny"], value="tiny"))
    more = event_of(demo, "click", "cmp-add").fn
    count, add, *rest = more(3)
    assert count == 4
    assert add.interactive is False
    assert [group.visible for group in rest[:MAX_CONFIGURATIONS]] == [True] * 4
    less = event_of(demo, "click", "remove-cmp-b").fn
    values = inputs(3)[1 + len(REQUEST) + len(TEXT) + 1 :]
    count, _, *rest = less("tiny", 3, *values)
    assert count == 2
    held = rest[2 * MAX_CONFIGURATIONS :][: len(values)]
    size = len(values) // MAX_CONFIGURATIONS
    assert form.read_cache(held[1:size]) == FULL
    assert form.read_cache(held[size + 1 : 2 * size]) == EVICT  # C has moved up
    assert more(4)[0] == 4
    assert less("tiny", 1, *values)[0] == 1
    assert len(rail.inputs) == len(inputs())


def test_the_stop_is_the_engine_s(make_context):
    seen: list[threading.Event] = []

    class Watching(FakeComparing):
        def _all(self, request, stop):
            seen.append(stop)
            return super()._all(request, stop)

    context = make_context(comparing=Watching())
    shown = frames(CompareHandlers(context))
    assert seen == [context.comparisons.get(shown[-1]["run"], "me").stop]
