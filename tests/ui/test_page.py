"""The page as gradio sees it: what it offers to callers, what waits in which queue, what it keeps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvviz import lab
from kvviz.catalogue import languages
from kvviz.ui.context import AppContext
from kvviz.ui.page import build_app

Make = Callable[..., AppContext]


@pytest.fixture(scope="module")
def demo(make_context: Make):
    return build_app(make_context())


def test_only_named_endpoints_are_offered_to_outside_callers(demo) -> None:
    offered = demo.get_api_info(all_endpoints=True)
    assert set(offered["named_endpoints"]) == {"/run", "/score", "/presets"}
    assert offered["unnamed_endpoints"] == {}


def test_only_what_asks_the_model_is_queued_and_the_line_decides_whose_turn_it_is(demo) -> None:
    queued = [fn for fn in demo.fns.values() if fn.queue and not any(t[1] == "unload" for t in fn.targets)]
    queued = [fn for fn in queued if fn.api_visibility == "private"]
    assert {fn.name for fn in queued} == {"stream", "fulfil"}, "runs, comparisons, experiments, lessons"
    assert {(fn.concurrency_id, fn.concurrency_limit) for fn in queued} == {("model", None)}
    placed = {getattr(block, "elem_id", None) for block in demo.blocks.values()}
    offered = [info for info in lab.experiments() if f"lab-{info.name}-run" in placed]
    assert len(queued) == (4 + len(offered)) * len(languages()), "a page for each language"


def test_a_closed_tab_is_noticed(demo) -> None:
    assert any(target[1] == "unload" for fn in demo.fns.values() for target in fn.targets)


def test_the_page_is_built_before_any_model_is_asked_for(make_context: Make) -> None:
    context = make_context()
    build_app(context)
    assert context.loader.state(context.default_model).phase == "absent"


def test_two_pages_share_no_runs(make_context: Make) -> None:
    assert make_context().runs is not make_context().runs


def test_every_event_of_the_page_is_private(demo) -> None:
    visible = [fn.api_name for fn in demo.fns.values() if fn.api_visibility != "private"]
    assert visible == ["run", "score", "presets"]
