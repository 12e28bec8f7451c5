"""The Compare tab's links: its fields come back, as many configurations as there were; nothing is run."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.catalogue import languages
from kvviz.config import CacheConfig
from kvviz.ui import compare_form, form, links
from kvviz.ui.compare_form import TEXT_FIELDS, TEXTS
from kvviz.ui.compare_links import N_OPENED, SIDES, CompareLinkHandlers
from kvviz.ui.page import build_app
from tests.builders import EVICT, FULL, STACK
from tests.test_permalink import caches, outcome
from tests.ui.test_compare_handlers import TEXT, inputs

N_REQUEST = len(form.REQUEST_FIELDS)
#: where the parts of an opened link begin
REQUEST, SLICE = 5, 5 + N_REQUEST
COUNT = SLICE + len(TEXT_FIELDS)
FIRST_SIDE = COUNT + 2 + 2 * len(SIDES)


def skips(value: Any) -> bool:
    return isinstance(value, dict) and value.get("__type__") == "update"


def side(outputs: list[Any], index: int) -> list[Any]:
    """What one configuration is filled with."""
    return outputs[FIRST_SIDE + index * links.N_SIDE :][: links.N_SIDE]


def opened_inputs(outputs: list[Any], before: list[Any]) -> list[Any]:
    """The values of ``CompareRail.inputs`` after a link was opened on a page that held ``before``."""
    size = 1 + len(form.CACHE_FIELDS)
    sides = [value for i in range(len(SIDES)) for value in side(outputs, i)[:size]]
    filled = [outputs[3], *outputs[REQUEST : COUNT + 1], *sides]
    return [old if skips(value) else value for value, old in zip(filled, before, strict=True)]


@pytest.fixture(scope="module")
def handlers(make_context) -> CompareLinkHandlers:
    return CompareLinkHandlers(make_context())


@settings(max_examples=25, deadline=None)
@given(
    st.lists(caches(), min_size=1, max_size=4),
    st.sampled_from(TEXTS),
    st.integers(0, 10_000),
    st.integers(2, 10_000),
    st.integers(0, 2**53 - 1),
)
def test_what_stands_in_the_fields_comes_back(
    make_context, handlers, made, name, start, length, seed
) -> None:
    given_caches = tuple(made + [FULL] * (4 - len(made)))
    slice_ = {"text": name, "start": start, "length": length, "skip": length // 2 - (length < 4)}
    before = inputs(
        len(made), text=slice_, caches=given_caches, prompt="p: 東京\tx", use_chat_template=False,
        max_new_tokens=9, decoding="sampled", temperature=0.25, top_p=1, seed=seed,
    )  # fmt: skip
    written = outcome(lambda: handlers.query(*before))
    assert not isinstance(written, Exception), written
    query, remark = written
    assert remark == ""
    outputs = handlers.open_link("?" + query)
    assert len(outputs) == N_OPENED
    context = make_context()
    after = opened_inputs(outputs, inputs(3, text=TEXT))
    assert compare_form.read_inputs(after, context) == compare_form.read_inputs(before, context)
    assert handlers.query(*after) == written, "one request has one link"


def test_a_link_is_short_and_selects_its_tab(handlers) -> None:
    query, _ = handlers.query(*inputs(3, prompt="What?"))
    assert query == (
        "v=1&tab=compare&model=tiny&prompt=q&chat=1&n=6&text=code&start=0&length=10&skip=3"
        "&a=full&b=full-stack&c=full;" + query.split("&c=full;")[1]
    )
    assert "&d=" not in query
    told, timer, tabs, model, ready, *_ = outputs = handlers.open_link(query)
    assert "press Compare" in json.loads(told)["text"]
    assert timer.active is True
    assert tabs.selected == "compare"
    assert (model, ready) == ("tiny", "q")
    assert all(skips(value) for value in outputs[REQUEST + 3 : SLICE]), "sampling stays as it is"
    assert all(skips(value) for value in side(outputs, 3)), "D stays as it is"
    assert side(outputs, 2)[-1].open is True, "what differs from its preset is shown"
    assert skips(side(outputs, 0)[-1])


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_as_many_configurations_are_visible_as_the_link_has(handlers, count) -> None:
    query, _ = handlers.query(*inputs(count))
    shown, add, *rest = handlers.open_link(query)[COUNT:FIRST_SIDE]
    assert shown == count
    assert add.interactive == (count < 4)
    assert [group.visible for group in rest[:4]] == [i < count for i in range(4)]
    assert all(remove.interactive == (count > 1) for remove in rest[4:])


def test_a_link_of_some_fields_leaves_the_others(handlers) -> None:
    outputs = handlers.open_link("?v=1&tab=compare&n=3&text=none")
    assert outputs[REQUEST + 2] == 3
    assert outputs[SLICE] == "none"
    assert all(skips(value) for value in [outputs[3], outputs[4], *outputs[SLICE + 1 :]])


def test_without_a_text_its_numbers_do_not_matter(handlers) -> None:
    query, _ = handlers.query(*inputs(text=TEXT | {"text": "none", "length": None}))
    assert "&text=none&a=" in query


@pytest.mark.parametrize(
    "query", ["", "?lang=zh", "?v=1&tab=run&n=5", "?v=1&n=5", "?v=7", "?lesson=sink", None]
)
def test_without_a_link_of_this_tab_nothing_changes(handlers, query) -> None:
    outputs = handlers.open_link(query)
    assert len(outputs) == N_OPENED
    assert all(skips(value) for value in outputs)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("v=9", "version"),
        ("v=1&n=0", "8192"),
        ("v=1&n=5&n=6", "twice"),
        ("v=1&model=/etc/passwd", "/etc/passwd"),
        ("v=1&prompt=q&p=hi", "twice"),
        ("v=1&p=%00", "U+0000"),
        ("v=1&text=../../etc/passwd", "passwd"),
        ("v=1&text=https://example.com/x", "not one of pydoc-topics"),
        ("v=1&start=-1", "start"),
        ("v=1&start=99999999", "10000000"),
        ("v=1&length=1", "length"),
        ("v=1&length=10&skip=9", "9"),
        ("v=1&skip=4000", "4000"),
        ("v=1&count=9", "count"),
        ("v=1&e=full", "\"e\""),
        ("v=1&b=full", "without a gap"),
        ("v=1&a=full&c=full", "without a gap"),
        ("v=1&a=full&b=full;window=0", "window"),
        ("v=1&a=<img src=x onerror=alert(1)>", "<img src=x"),
    ],
)  # fmt: skip
def test_a_refused_link_is_told_in_its_tab_and_changes_nothing(handlers, query, words) -> None:
    told, timer, tabs, *rest = handlers.open_link(f"?tab=compare&{query}")
    assert "<" not in told, "nothing that could be taken for markup is sent"
    shown = json.loads(told)
    assert shown["kind"] == "error"
    assert words in shown["text"]
    assert "its own settings" in shown["text"]
    assert tabs.selected == "compare"
    assert len(rest) == N_OPENED - 3
    assert all(skips(value) for value in [timer, *rest])


def test_a_link_runs_and_loads_nothing(make_context) -> None:
    context = make_context()
    CompareLinkHandlers(context).open_link("v=1&tab=compare&model=tiny&p=hi&a=full")
    assert len(context.comparisons) == 0
    assert context.loader.state("tiny").phase == "absent"


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"max_new_tokens": None}, "max_new_tokens"),
        ({"prompt": "x" * 41_000}, "40000"),
        ({"text": TEXT | {"skip": 9}}, "9"),
        ({"text": TEXT | {"start": 10**8}}, "10000000"),
        ({"caches": (FULL, CacheConfig(window_size=10**8), STACK, EVICT)}, "1000000"),
    ],
)
def test_why_there_is_no_link_is_said(handlers, given_, words) -> None:
    value = json.loads(handlers.copy_link(*inputs(**given_)))
    assert value["query"] == ""
    assert words in value["error"]


def test_a_model_that_is_not_offered_is_left_out_and_that_is_said(handlers) -> None:
    value = json.loads(handlers.copy_link(*inputs(model="/home/me/secret-model")))
    assert "secret" not in value["query"]
    assert "secret-model" in value["remark"]


def test_button_and_opening_are_wired(make_context) -> None:
    demo = build_app(make_context())
    openings = [fn for fn in demo.fns.values() if fn.name == "open_link"]
    assert len(openings) == len(languages())
    for opening in openings:
        assert opening.targets[0][1] == "load"
        assert len(opening.outputs) == N_OPENED
        assert opening.js == "() => window.location.search"
        assert not opening.queue
    copies = [fn for fn in demo.fns.values() if fn.name == "copy_link"]
    assert [fn.targets[0][1] for fn in copies] == ["click"] * len(languages())
    buttons = [block for block in demo.blocks.values() if getattr(block, "elem_id", "") == "copy-link-cmp"]
    assert all(isinstance(button, gr.Button) for button in buttons)
    assert len(buttons) == len(languages())
