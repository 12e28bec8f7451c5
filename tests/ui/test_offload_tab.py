"""The Offload tab: what a choice shows, what streams in, what its buttons fill in. No model is called."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest

from kvviz.config import CacheConfig, Middle, Offload, OffloadRead, RunConfig
from kvviz.events import TokenGenerated
from kvviz.ui import form
from kvviz.ui.context import AppContext
from kvviz.ui.handlers import RunHandlers
from kvviz.ui.offload_handlers import TRIED, OffloadHandlers
from kvviz.ui.offload_views import OFFLOAD
from kvviz.ui.page import build_app
from kvviz.ui.runs import LiveRun
from tests.builders import FULL, STACK, make_events
from tests.test_timeline import SYNCHRONOUS
from tests.ui.fakes import FakeEngine

Make = Callable[..., AppContext]
REQUEST = SimpleNamespace(session_hash="me")


def ended_run(context: AppContext, steps: int = 4) -> LiveRun:
    """B has a timeline in every step, A has none."""
    configs = [
        RunConfig("a", cache, label, max_new_tokens=steps) for cache, label in ((FULL, "f"), (STACK, "s"))
    ]
    run = LiveRun("me", "tiny", configs)
    for index, config in enumerate(configs):
        for event in make_events(8, steps, cache=config.cache, label=config.label):
            if index and isinstance(event, TokenGenerated):
                event = replace(event, state=replace(event.state, timeline=SYNCHRONOUS))
            run.apply(replace(event, run=index))
    run.finish()
    context.runs.add(run)
    return run


def shown(values: list[str]) -> dict:
    return {name: json.loads(value) for name, value in zip(OFFLOAD, values, strict=True)}


def test_a_choice_shows_a_step_of_a_configuration_and_asks_no_model(make_context: Make) -> None:
    engine = FakeEngine()
    context = make_context(engine)
    run, handlers = ended_run(context), OffloadHandlers(context)
    values = shown(handlers.look(REQUEST, run.id, "1", True, 0, "nvme"))
    assert len(values["offload_timeline"]["figure"]["data"]) == 3
    assert "step 3 of 3" in values["offload_said"]["sentences"][0]
    assert "7.88 GB/s" in values["offload_link"]["sentences"][0]
    assert len(values["offload_tables"]["tables"]) == len(values["offload_links"]["tables"]) == 1
    values = shown(handlers.look(REQUEST, run.id, "1", False, 2, "pcie5"))
    assert "step 2 of 3" in values["offload_said"]["sentences"][0]
    assert "63 GB/s" in values["offload_link"]["sentences"][0]
    latest, *values = handlers.scrub(REQUEST, run.id, "1", True, 0, "pcie5")
    assert latest is False
    assert "the prompt" in shown(values)["offload_said"]["sentences"][0]
    assert engine.asked == []


def test_a_configuration_without_offload_says_what_makes_one(make_context: Make) -> None:
    context = make_context()
    run = ended_run(context)
    values = shown(OffloadHandlers(context).look(REQUEST, run.id, "0", True, 0, "pcie4"))
    assert "keeps everything on the device" in str(values["offload_timeline"]["figure"]["layout"]).replace(
        "<br>", " "
    )
    assert values["offload_said"]["sentences"] == values["offload_link"]["sentences"] == []
    assert values["offload_tables"]["tables"] == []


def test_entering_shows_the_run_as_of_now_and_its_steps(make_context: Make) -> None:
    context = make_context()
    run, handlers = ended_run(context), OffloadHandlers(context)
    handlers.look(REQUEST, run.id, "1", False, 1, "pcie4")
    slider, *values = handlers.enter(REQUEST, run.id)
    assert (slider.maximum, slider.value) == (3, 1)
    assert "step 1 of 3" in shown(values)["offload_said"]["sentences"][0]
    assert context.desks.get("me").visible == "offload"
    other = SimpleNamespace(session_hash="someone else")
    slider, *values = handlers.enter(other, run.id)
    assert all(value == gr.skip() for value in (slider, *values))


def test_a_run_fills_the_tab_while_it_is_in_front(make_context: Make) -> None:
    context = make_context()
    run, handlers = ended_run(context), RunHandlers(context, tuple(OFFLOAD))
    assert "offload_timeline" not in handlers._builders(run)
    context.desks.change("me", visible="offload")
    assert set(handlers._builders(run)) == set(OFFLOAD)


@pytest.mark.parametrize("tried", list(TRIED))
def test_buttons_fill_in_a_pair_that_differs_in_its_offload_alone(make_context: Make, tried: str) -> None:
    context = make_context()
    told, key, prompt, chat, *sides, tabs = OffloadHandlers(context).fill(tried, "tiny")
    assert "come back to the Offload tab" in json.loads(told)["text"]
    assert (key, prompt, chat) == ("q", "What?", True), "the only prompt there is"
    assert tabs.selected == "run"
    size = 2 + len(form.CACHE_FIELDS)
    a, b = (form.read_cache(side[1:-1]) for side in (sides[:size], sides[size:]))
    assert isinstance(a, CacheConfig)
    assert a.offload == Offload.NONE
    assert a.middle is b.middle is Middle.QUANTIZE
    assert replace(b, offload=Offload.NONE, offload_read=OffloadRead.PREFETCH) == a
    assert (b.offload, b.offload_read) == TRIED[tried]


def test_the_tab_stands_before_compare_and_queues_nothing(make_context: Make) -> None:
    demo = build_app(make_context())
    tabs = [block.id for block in demo.blocks.values() if isinstance(block, gr.Tab)]
    order = [key for key in tabs if key in ("run", "quant", "offload", "compare")]
    assert order[:4] == ["run", "quant", "offload", "compare"]
    named = [fn for fn in demo.fns.values() if fn.name in ("look", "scrub", "enter", "fill")]
    assert named
    assert not any(fn.queue for fn in named)
