"""Run, stop, look and leave, over a made-up engine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from kvviz.errors import ConfigError, ModelError
from kvviz.quant_config import QuantConfig
from kvviz.ui.context import AppContext
from kvviz.ui.form import cache_fields
from kvviz.ui.handlers import RunHandlers
from kvviz.ui.rail import name_side
from kvviz.ui.runs import LiveRun, RunStore, ViewChoice
from kvviz.ui.views import BUILDERS
from tests.ui.fakes import FakeEngine, FakeStore

VIEWS = ("panel_a", "strip_a", "panel_b", "strip_b", *[v for v in BUILDERS if not v.startswith("strip")])
CONTROLS = ["0", "sink", True, 0, 0, 0, "linear", "relative"]


class Client:
    """One session acting on the handlers, as the page would."""

    def __init__(self, context: AppContext, session: str = "one") -> None:
        self.context, self.session = context, session
        self.handlers = RunHandlers(context, VIEWS)
        self.run_id = self.pending = ""
        self.notice: dict[str, Any] = {}
        self.views: dict[str, Any] = {}
        self.frames = 0
        self.slider = gr.Slider()

    @property
    def request(self) -> gr.Request:
        return SimpleNamespace(session_hash=self.session)  # type: ignore[return-value]

    @property
    def run(self) -> LiveRun:
        """The run that is shown, or the one that was laid ready."""
        run = self.context.runs.get(self.run_id or self.pending, self.session)
        assert run is not None
        return run

    def prepare(self, prompt: str = "What?", tokens: Any = 6, **fields: Any) -> bool:
        """Press Run; True when a run was laid ready."""
        sides: list[Any] = []
        for name in self.context.opening:
            cache = self.context.presets.cache(name)
            values = cache_fields(replace(cache, **fields) if name == "full-stack" else cache)
            sides += [name, *values]
        request = [prompt, True, tokens, "greedy", 0.8, 0.95, 0]
        pending, _, notice = self.handlers.prepare(self.request, *CONTROLS, "tiny", *request, *sides)
        self._take(notice, [])
        self.pending = pending
        return bool(pending)

    def stream(self) -> Iterator[None]:
        """Frames until the run ends."""
        for run_id, _, notice, _, slider, *views in self.handlers.stream(self.request, self.pending):
            if isinstance(run_id, str):
                self.run_id = run_id
            if isinstance(slider, gr.Slider):
                self.slider = slider
            self._take(notice, views)
            self.frames += 1
            yield

    def go(self, **request: Any) -> None:
        """Press Run and watch to the end."""
        if self.prepare(**request):
            for _ in self.stream():
                pass

    def _take(self, notice: Any, views: list[Any]) -> None:
        if not _is_skip(notice):
            self.notice = json.loads(notice)
        self.views |= {
            name: json.loads(value) for name, value in zip(VIEWS, views, strict=False) if not _is_skip(value)
        }


def _is_skip(value: Any) -> bool:
    return isinstance(value, dict) and value.get("__type__") == "update"


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Until it holds, or fail."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


Make = Callable[..., AppContext]


def test_a_run_ends_with_all_its_numbers_on_the_page(make_context: Make) -> None:
    client = Client(make_context())
    client.go()
    assert client.run.is_done
    assert client.notice["kind"] != "error"
    assert {client.views[f"panel_{side}"]["state"] for side in "ab"} == {"length"}
    assert client.views["panel_a"]["segments"]["before"]
    assert client.views["strip_b"]["count"] == 8 + 6
    assert client.views["memory"]["figure"]["data"]
    assert client.views["quant_error"]["figure"]["data"]
    assert client.views["attention"]["figure"]["data"]


def test_stop_ends_the_run_within_two_tokens_and_closes_the_engine(make_context: Make) -> None:
    engine = FakeEngine(pause_s=0.05)
    client = Client(make_context(engine))
    assert client.prepare(tokens=60)
    frames = client.stream()
    wait_for(lambda: next(frames, None) is None and len(client.run.snapshot()[0].generated_ids) >= 3)
    told = len(client.run.snapshot()[0].generated_ids)
    client.handlers.stop(client.request)
    for _ in frames:
        pass
    records = client.run.snapshot()
    assert all(record.status == "stopped" for record in records)
    assert len(records[0].generated_ids) <= told + 2
    assert engine.closed == 1
    assert client.views["panel_a"]["segments"]["before"], "what was generated is kept"
    client.go()
    assert client.views["panel_a"]["state"] == "length", "the next run works"


def test_stop_while_the_model_loads(make_context: Make) -> None:
    gate = threading.Event()
    client = Client(make_context(store=FakeStore(gate=gate)))
    assert client.prepare()
    frames = client.stream()
    next(frames)
    client.handlers.stop(client.request)
    for _ in frames:
        pass
    gate.set()
    wait_for(lambda: client.run.is_done)
    assert not client.run.snapshot()[0].generated_ids


def test_the_step_slider_ends_where_the_run_did(make_context: Make) -> None:
    client = Client(make_context(FakeEngine(pause_s=0.05)))
    assert client.prepare(tokens=60)
    frames = client.stream()
    while not client.run_id:
        next(frames)
    assert client.slider.maximum == client.slider.value == 59
    wait_for(lambda: len(client.run.snapshot()[0].generated_ids) > 4)
    client.handlers.stop(client.request)
    for _ in frames:
        pass
    came = len(client.run.snapshot()[0].generated_ids)
    assert 4 < came < 60
    assert client.slider.maximum == client.slider.value == came - 1


def test_a_form_that_cannot_be_read_keeps_what_is_shown(make_context: Make) -> None:
    client = Client(make_context())
    client.go()
    shown, run_id = dict(client.views), client.run_id
    assert not client.prepare(tokens=0)
    assert client.notice["kind"] == "error"
    assert "max_new_tokens" in client.notice["text"]
    assert client.views == shown
    assert client.run_id == run_id
    client.go()
    assert client.notice["kind"] != "error"


@pytest.mark.parametrize(
    "fault",
    [
        {"engine": FakeEngine(refuse=ConfigError("prompt_empty"))},
        {"store": FakeStore(ModelError("model_not_found", model="<img src=x>"))},
        {"engine": FakeEngine(explode_at=0)},
        {"store": FakeStore(RuntimeError("secret detail"))},
    ],
)
def test_a_failure_is_one_sentence(make_context: Make, fault: dict[str, Any]) -> None:
    client = Client(make_context(**fault))
    begin = time.monotonic()
    client.go()
    assert time.monotonic() - begin < 3
    assert client.notice["kind"] == "error"
    assert client.notice["text"]
    assert "secret" not in client.notice["text"]
    assert "Traceback" not in client.notice["text"]


def test_a_failure_in_mid_run_keeps_the_text_and_the_next_run_works(make_context: Make) -> None:
    engine = FakeEngine(explode_at=14)
    client = Client(make_context(engine))
    client.go()
    assert client.notice["kind"] == "error"
    assert client.views["panel_a"]["segments"]["before"]
    assert engine.closed == 1
    engine.explode_at = None
    client.go()
    assert client.notice["kind"] != "error"
    assert client.views["panel_b"]["state"] == "length"


def test_a_refused_run_keeps_earlier_results(make_context: Make) -> None:
    engine = FakeEngine()
    client = Client(make_context(engine))
    client.go()
    shown, run_id = dict(client.views), client.run_id
    engine.refuse = ConfigError("prompt_empty")
    client.go(prompt="")
    assert client.notice["kind"] == "error"
    assert client.views == shown, "earlier results stay"
    assert client.run_id == run_id
    event = SimpleNamespace(layer=1, head=0)
    drawn = client.handlers.pick(client.request, event, client.run_id, *CONTROLS)  # type: ignore[arg-type]
    assert not all(_is_skip(view) for view in drawn[2:]), "and can still be looked into"


def test_two_sessions_do_not_mix(make_context: Make) -> None:
    engine = FakeEngine(pause_s=0.005)
    context = make_context(engine)
    one, two = Client(context, "one"), Client(context, "two")
    assert one.prepare(tokens=9, window_size=3)
    assert two.prepare(tokens=4, window_size=5)
    first, second = one.stream(), two.stream()
    alive = True
    while alive:
        alive = any([next(first, "end") != "end", next(second, "end") != "end"])
    assert len(one.run.snapshot()[0].generated_ids) == 9
    assert len(two.run.snapshot()[0].generated_ids) == 4
    assert one.run.snapshot()[1].config["cache"]["window_size"] == 3
    assert two.run.snapshot()[1].config["cache"]["window_size"] == 5
    assert context.runs.get(one.run_id, "two") is None, "a run id is worth nothing to another session"
    assert all(_is_skip(view) for view in two.handlers.look(two.request, one.run_id, *CONTROLS))


def test_stop_touches_no_other_session(make_context: Make) -> None:
    context = make_context()
    one, two = Client(context, "one"), Client(context, "two")
    assert one.prepare()
    assert two.prepare()
    one.handlers.stop(one.request)
    assert one.run.stop.is_set()
    assert not two.run.stop.is_set()


def test_a_closed_tab_stops_its_run(make_context: Make) -> None:
    engine = FakeEngine(pause_s=0.05)
    client = Client(make_context(engine))
    assert client.prepare(tokens=60)
    frames = client.stream()
    next(frames)
    run = client.run
    client.context.runs.forget(client.session)
    wait_for(lambda: run.is_done)
    assert engine.closed == 1
    assert len(client.context.runs) == 0


def test_a_watcher_that_goes_away_stops_the_run(make_context: Make) -> None:
    client = Client(make_context(FakeEngine(pause_s=0.05)))
    assert client.prepare(tokens=60)
    frames = client.handlers.stream(client.request, client.pending)
    next(frames)
    frames.close()  # type: ignore[attr-defined]
    wait_for(lambda: client.run.is_done)


def test_a_click_redraws_the_map_of_that_head_alone(make_context: Make) -> None:
    client = Client(make_context())
    client.go()
    event = SimpleNamespace(layer=1, head=2)
    layer, head, *views = client.handlers.pick(client.request, event, client.run_id, *CONTROLS)  # type: ignore[arg-type]
    drawn = {n for n, v in zip(BUILDERS, views, strict=True) if not _is_skip(v)}
    assert (layer, head) == (1, 2)
    assert drawn == {"attention", "tier_map"}
    changed = json.loads(dict(zip(BUILDERS, views, strict=True))["attention"])
    assert changed["figure"]["data"] != client.views["attention"]["figure"]["data"]


def test_frames_are_far_fewer_than_tokens(make_context: Make) -> None:
    client = Client(make_context(FakeEngine(pause_s=0.005)))
    begin = time.monotonic()
    client.go(tokens=80)
    assert client.frames <= 5 * (time.monotonic() - begin) + 2


def test_the_store_is_bounded() -> None:
    store = RunStore(max_runs=3)
    for i in range(9):
        run = LiveRun(f"s{i}", "tiny", [], ViewChoice())
        run.finish()
        store.add(run)
    assert len(store) == 3


def test_a_warning_from_the_weights_is_told_before_during_and_after_a_run(make_context: Make) -> None:
    context = make_context(FakeEngine(pause_s=0.02), FakeStore(warnings=["Beware."]))
    fields = cache_fields(context.presets.cache("full-stack"))
    line = json.loads(name_side(context, "tiny", "full-stack", *fields))
    assert line["text"] == ""  # nothing is known of a model that is not loaded
    context.loader.get("tiny")
    assert json.loads(name_side(context, "tiny", "full-stack", *fields))["text"] == "Beware."
    assert (
        json.loads(name_side(context, "tiny", "full", *cache_fields(context.presets.cache("full"))))["text"]
        == ""
    )
    client = Client(context)
    client.prepare()
    told = set()
    for _ in client.stream():
        told.add((client.notice["kind"], client.notice["text"]))
    assert ("busy", "Running. Configuration B: Beware.") in told
    assert (client.notice["kind"], client.notice["text"]) == ("info", "Configuration B: Beware.")


def test_a_group_that_does_not_divide_is_told_under_the_preset(make_context: Make) -> None:
    context = make_context()
    context.loader.get("tiny")
    cache = replace(context.presets.cache("full-stack"), key=QuantConfig.parse("int4:token:g32:absmax"))
    line = json.loads(name_side(context, "tiny", "full-stack", *cache_fields(cache)))
    assert "does not divide head_dim 16" in line["text"]
