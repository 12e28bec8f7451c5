"""Every visitor is spoken to in one language, whoever else is there: pages, handlers, threads, states."""

from __future__ import annotations

import contextvars
import inspect
import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from kvviz.catalogue import language, languages, phrase, speaking, text
from kvviz.errors import KvvizError
from kvviz.ui.context import AppContext
from kvviz.ui.language import bound, in_thread, page_path, switch
from kvviz.ui.page import build_app
from tests.ui.fakes import FakeStore

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., AppContext]
WAITING = "ui.phase.waiting"


def elsewhere(function: Callable[..., Any], *given: Any) -> Any:
    """Call as gradio does: in another thread, in a context that speaks the default language."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.Context().run, function, *given).result()


def test_the_default_language_is_spoken_unless_another_one_is_asked_for() -> None:
    assert (language(), text(WAITING)) == ("en", text(WAITING, "en"))
    with speaking("zh"):
        assert (language(), text(WAITING)) == ("zh", text(WAITING, "zh"))
        with speaking("en"):
            assert text(WAITING) == text(WAITING, "en")
        assert text(WAITING) == text(WAITING, "zh")
    assert language() == "en"


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ValueError, match="no texts in 'xx'"), speaking("xx"):
        pass


def test_a_phrase_and_a_refusal_speak_the_language_of_who_reads_them() -> None:
    kept, refused = phrase("ui.model.loading"), KvvizError("model_name_empty")
    said = str(kept), str(refused)
    with speaking("zh"):
        assert str(kept) == text("ui.model.loading", "zh") != said[0]
        assert str(refused) == text("error.model_name_empty", "zh") != said[1]


def test_a_bound_function_speaks_its_language_and_keeps_its_signature() -> None:
    def handler(request: gr.Request, event: gr.EventData, value: str, progress: Any = 3) -> str:
        """Says the language."""
        return language()

    spoken = bound(handler, "zh")
    assert inspect.signature(spoken) == inspect.signature(handler)
    assert gr.utils.get_type_hints(spoken) == gr.utils.get_type_hints(handler)
    assert elsewhere(spoken, None, None, "") == "zh"
    assert language() == "en"


def test_each_step_of_a_bound_generator_speaks_its_language_and_leaves_its_callers_alone() -> None:
    ended: list[str] = []

    def handler(count: int) -> Iterator[str]:
        try:
            for _ in range(count):
                yield language()
        finally:
            ended.append(language())

    first, second = bound(handler, "zh")(3), bound(handler, "en")(3)
    seen = []
    for _ in range(3):
        seen += [elsewhere(next, first), language(), elsewhere(next, second), language()]
    assert seen == ["zh", "en", "en", "en"] * 3
    elsewhere(first.close)
    assert ended == ["zh"]
    assert inspect.isgeneratorfunction(bound(handler, "zh"))


def test_an_asynchronous_handler_is_refused() -> None:
    async def handler() -> None: ...

    with pytest.raises(TypeError):
        bound(handler, "zh")


def test_a_thread_speaks_the_language_of_whoever_starts_it() -> None:
    heard: list[str] = []
    done = threading.Event()

    def work(name: str) -> None:
        heard.extend([name, language()])
        done.set()

    with speaking("zh"):
        in_thread(work, "given", called="kvviz-test")
    assert done.wait(5)
    assert heard == ["given", "zh"]


def test_no_thread_of_the_interface_forgets_the_language() -> None:
    starters = [
        path.name
        for path in sorted((ROOT / "kvviz" / "ui").rglob("*.py"))
        if re.search(r"\bThread\(|ThreadPoolExecutor\(", path.read_text(encoding="utf-8"))
    ]
    assert starters == ["language.py"], "start threads with in_thread"


def test_a_load_is_told_to_each_in_their_language(make_context: Make) -> None:
    context = make_context(store=FakeStore(error=KvvizError("model_name_empty")))
    with speaking("zh"), pytest.raises(KvvizError):
        context.loader.get("tiny")
    assert str(context.loader.state("tiny").message) == text("error.model_name_empty", "en")


# -- the two pages of one application --------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo(make_context: Make) -> gr.Blocks:
    return build_app(make_context())


def component(demo: gr.Blocks, name: str, elem_id: str) -> Any:
    """A component of one language's page."""
    page = page_path(name)
    return next(b for b in demo.blocks.values() if b.page == page and getattr(b, "elem_id", None) == elem_id)


def handlers_of(demo: gr.Blocks, name: str, trigger: Any, event: str) -> list[Any]:
    """Functions of one language's page that ``event`` of a component calls."""
    return [f for f in demo.fns.values() if f.page == page_path(name) and (trigger._id, event) in f.targets]


@pytest.mark.parametrize("name", languages())
def test_a_page_is_labelled_in_its_language(demo: gr.Blocks, name: str) -> None:
    assert component(demo, name, "run").value == text("ui.rail.run", name)
    assert component(demo, name, "sink-size-a").label == text("ui.field.sink_size.label", name)
    plot = json.loads(component(demo, name, "memory").value)
    assert plot["name"] == text("figures.memory.title", name)


def test_both_pages_have_the_same_components(demo: gr.Blocks) -> None:
    ids = [
        sorted(filter(None, (getattr(b, "elem_id", None) for b in demo.blocks.values() if b.page == page)))
        for page in map(page_path, languages())
    ]
    assert ids[0] == ids[1]
    assert len(ids[0]) > 100


def test_every_event_of_a_page_belongs_to_it(demo: gr.Blocks) -> None:
    for event in demo.fns.values():
        parts = [demo.blocks[key] for key, _ in event.targets if key is not None and key in demo.blocks]
        assert {part.page for part in [*parts, *event.inputs, *event.outputs] if part is not demo} <= {
            event.page
        }


def request_of(session: str) -> Any:
    return SimpleNamespace(session_hash=session)


def test_two_sessions_in_two_languages_do_not_mix(demo: gr.Blocks) -> None:
    """Runs of both go on at the same time, their steps in turns; then each looks, and each is refused."""
    runs, refused = {}, {}
    for name in languages():
        prepare = next(f for f in handlers_of(demo, name, component(demo, name, "run"), "click") if f.inputs)
        values = [getattr(part, "value", None) for part in prepare.inputs]
        laid = elsewhere(prepare.fn, request_of(name), *values)
        assert json.loads(laid[2])["text"] == text(WAITING, name)
        emptied = [
            None if getattr(p, "elem_id", "") == "model" else v
            for p, v in zip(prepare.inputs, values, strict=True)
        ]
        refused[name] = json.loads(elsewhere(prepare.fn, request_of("refused"), *emptied)[2])["text"]
        following = next(f for f in demo.fns.values() if f.trigger_after == prepare._id)
        assert following.name == "stream"
        runs[name] = (following, following.fn(request_of(name), laid[0]))
    assert refused == {name: text("ui.form.model_missing", name) for name in languages()}

    seen: dict[str, dict[str, str]] = {name: {} for name in languages()}
    going = set(languages())
    while going:
        for name in sorted(going):
            event, steps = runs[name]
            frame = elsewhere(next, steps, None)
            if frame is None:
                going.discard(name)
                continue
            for part, value in zip(event.outputs, frame, strict=True):
                if isinstance(value, str) and value.startswith("{"):
                    seen[name][part.elem_id] = value
    for name in languages():
        assert json.loads(seen[name]["memory"])["name"] == text("figures.memory.title", name)
        status = json.loads(seen[name]["panel-a"])["status"]
        assert status == text("figures.status.length", name, generated=64)
        axes = json.loads(seen[name]["memory"])["figure"]["layout"]
        assert text("figures.axis.tokens_seen", name) in json.dumps(axes, ensure_ascii=False)


def test_the_switch_offers_every_language_and_marks_the_one_that_is_spoken() -> None:
    with speaking("zh"):
        links = switch()
    assert re.findall(r'data-language="(\w+)"', links) == list(languages())
    assert re.findall(r'lang="zh-Hans" hreflang="zh-Hans" aria-current="true">(.*?)</a>', links) == ["中文"]
