"""The Run tab's links: what stands in the fields comes back; nothing is run, loaded or opened by a link."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.catalogue import languages
from kvviz.config import CacheConfig
from kvviz.ui import form
from kvviz.ui.links import LinkHandlers, n_opened
from kvviz.ui.page import build_app
from kvviz.ui.rail import read_inputs
from tests.test_permalink import caches
from tests.ui.conftest import CACHES

REQUEST = ("Why?\n<b>bold</b> & ${x}", False, 24, "sampled", 0.7, 0.9, 7)


def skips(value: Any) -> bool:
    return isinstance(value, dict) and value.get("__type__") == "update"


def inputs(request=REQUEST, a=CACHES["full"], b=CACHES["full-stack"], model="tiny") -> list[Any]:
    return [model, *request, "full", *form.cache_fields(a), "full-stack", *form.cache_fields(b)]


def opened_inputs(outputs: list[Any]) -> list[Any]:
    """The values of ``Rail.inputs`` after a link was opened on a page whose fields were all replaced."""
    _, _, model, _, *rest = outputs
    n_request, n_fields = len(form.REQUEST_FIELDS), len(form.CACHE_FIELDS)
    request, rest = rest[:n_request], rest[n_request:]
    side = 1 + n_fields + 2
    return [model, *request, *rest[: 1 + n_fields], *rest[side : side + 1 + n_fields]]


def runs_of(values: list[Any], context) -> list[Any]:
    model, request, sides = read_inputs(values)
    return [model, form.read_request(request, sides, context.presets)]


@settings(max_examples=25)
@given(caches(), caches(), st.integers(1, 8192), st.integers(0, 2**53 - 1))
def test_what_stands_in_the_fields_comes_back(make_context_once, a, b, tokens, seed) -> None:
    handlers = LinkHandlers(make_context_once)
    before = inputs(("p: 東京\tx", True, tokens, "sampled", 0.25, 1, seed), a, b)
    query, remark = handlers.query(*before)
    assert remark == ""
    outputs = handlers.open("?" + query)
    assert len(outputs) == n_opened()
    assert runs_of(opened_inputs(outputs), make_context_once) == runs_of(before, make_context_once)


@pytest.fixture(scope="module")
def make_context_once(request):
    from types import SimpleNamespace

    from kvviz import lab
    from kvviz.engine import summarize
    from kvviz.ui.context import AppContext, Presets
    from kvviz.ui.loading import Loader
    from tests.ui.fakes import FakeComparing, FakeEngine, FakeRecompute, FakeStore

    return AppContext(
        compare=FakeEngine(),
        comparing=FakeComparing(),
        lab=lab,
        recompute=FakeRecompute(),
        summarize=summarize,
        loader=Loader(FakeStore()),
        models=[SimpleNamespace(name="tiny", label="tiny")],
        presets=Presets(tuple(CACHES), lambda name: f"the {name}", CACHES.__getitem__),
        prompts=[SimpleNamespace(key="q", label="question", text="What?", use_chat_template=True)],
        default_model="tiny",
    )


def test_ready_prompts_and_greedy_runs_make_short_links(make_context) -> None:
    handlers = LinkHandlers(make_context())
    request = ("What?", True, 64, "greedy", 0.8, 0.95, 0)
    query, _ = handlers.query(*inputs(request))
    assert query == "v=1&tab=run&model=tiny&prompt=q&chat=1&n=64&a=full&b=full-stack"
    told, timer, model, ready, *rest = handlers.open(query)
    assert json.loads(told)["kind"] == "info"
    assert timer.active is True
    assert (model, ready) == ("tiny", "q")
    assert rest[:3] == ["What?", True, 64]
    assert all(skips(value) for value in rest[3:7]), "sampling stays as it is"


def test_a_link_of_some_fields_leaves_the_others(make_context) -> None:
    told, _, model, ready, *rest = LinkHandlers(make_context()).open("?v=1&b=full;window=9&n=3")
    assert "press Run" in json.loads(told)["text"]
    assert skips(model)
    assert skips(ready)
    assert [i for i, value in enumerate(rest[:7]) if not skips(value)] == [2]
    side = 3 + len(form.CACHE_FIELDS)
    assert all(skips(value) for value in rest[7 : 7 + side])
    preset, *fields = rest[7 + side :][: 1 + len(form.CACHE_FIELDS)]
    assert preset == "full"
    assert fields[form.CACHE_FIELDS.index("window_size")] == 9
    label, accordion = rest[-2:]
    assert "custom" in json.loads(label)["text"]
    assert accordion.open is True


@pytest.mark.parametrize("query", ["", "?__theme=dark", "?lang=zh", "?v=1&tab=compare&x=1", None])
def test_without_a_link_nothing_changes(make_context, query) -> None:
    assert all(skips(value) for value in LinkHandlers(make_context()).open(query))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?v=9", "version"),
        ("?v=1&model=/etc/passwd", "/etc/passwd"),
        ("?v=1&model=https://example.com/x", "not one of tiny"),
        ("?v=1&prompt=q&p=hi", "twice"),
        ("?v=1&a=full;window=0", "window"),
        ("?v=1&<img src=x>=1", "<img src"),
        ("?v=1&n=1e9", "1e9"),
    ],
)
def test_a_refused_link_changes_nothing_but_the_notice(make_context, query, words) -> None:
    context = make_context()
    told, *rest = LinkHandlers(context).open(query)
    assert "<" not in told, "nothing that could be taken for markup is sent"
    shown = json.loads(told)
    assert shown["kind"] == "error"
    assert words in shown["text"]
    assert "its own settings" in shown["text"]
    assert len(rest) == n_opened() - 1
    assert all(skips(value) for value in rest)


def test_a_link_runs_and_loads_nothing(make_context) -> None:
    context = make_context()
    LinkHandlers(context).open("v=1&model=tiny&p=hi&a=full")
    assert len(context.runs) == 0
    assert context.loader.state("tiny").phase == "absent"


def test_a_model_that_is_not_offered_is_left_out_and_that_is_said(make_context) -> None:
    value = json.loads(LinkHandlers(make_context()).copy(*inputs(model="/home/me/secret-model")))
    assert "secret" not in value["query"]
    assert "secret-model" in value["remark"]
    assert value["error"] == ""


@pytest.mark.parametrize(
    ("request_", "b", "words"),
    [
        (("", True, None, "greedy", 0.8, 0.95, 0), CACHES["full"], "max_new_tokens"),
        (("x" * 41_000, True, 5, "greedy", 0.8, 0.95, 0), CACHES["full"], "40000"),
        (("a\x00b", True, 5, "greedy", 0.8, 0.95, 0), CACHES["full"], "U+0000"),
        (("a", True, 5, "sampled", 0.0001, 0.95, 0), CACHES["full"], "0.001"),
        (("a", True, 5, "greedy", 0.8, 0.95, 0), CacheConfig(window_size=10**8), "1000000"),
    ],
)
def test_why_there_is_no_link_is_said(make_context, request_, b, words) -> None:
    value = json.loads(LinkHandlers(make_context()).copy(*inputs(request_, b=b)))
    assert value["query"] == ""
    assert words in value["error"]


def test_the_same_link_twice_is_copied_twice(make_context) -> None:
    handlers = LinkHandlers(make_context())
    assert handlers.copy(*inputs()) != handlers.copy(*inputs())


def test_button_and_opening_are_wired(make_context) -> None:
    demo = build_app(make_context())
    names = {(fn.name, target[1]) for fn in demo.fns.values() for target in fn.targets}
    assert {("copy", "click"), ("open", "load")} <= names
    openings = [fn for fn in demo.fns.values() if fn.name == "open" and fn.targets[0][1] == "load"]
    assert len(openings) == len(languages())
    for opening in openings:
        assert len(opening.outputs) == n_opened()
        assert opening.js == "() => window.location.search"
