"""Saving the runs of the Run tab and opening what was saved, without a browser and without a model."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kvviz.comparison import Comparison
from kvviz.report import Report, read, to_json
from kvviz.ui.atlas import AtlasHandlers
from kvviz.ui.atlas_views import ATLAS
from kvviz.ui.context import AppContext
from kvviz.ui.desk import Wish
from kvviz.ui.files import OpenedRun
from kvviz.ui.handlers import N_STREAM_CONTROLS
from kvviz.ui.offload_handlers import OffloadHandlers
from kvviz.ui.offload_views import OFFLOAD
from kvviz.ui.run_files import RunFiles
from kvviz.ui.share import KINDS
from tests.comparisons import make_comparison
from tests.test_report import SPOILT, make_report, spoil
from tests.ui.fakes import FakeEngine, FakeRecompute, FakeStore
from tests.ui.test_atlas_handlers import Visitor
from tests.ui.test_compare_files import HOSTILE
from tests.ui.test_handlers import CONTROLS, VIEWS, _is_skip, wait_for

Make = Callable[..., AppContext]


class Keeper(Visitor):
    """A session that saves and opens."""

    def __init__(self, context: AppContext, session: str = "one") -> None:
        super().__init__(context, session)
        self.files = RunFiles(context, self.handlers)
        self.stop: Any = None

    def save(self, kind: str = "json") -> str:
        """What the file holds; empty if there is none."""
        file, line = self.files.save(kind, self.request, self.run_id)
        self._take(line, [])
        if _is_skip(file):
            return ""
        value = json.loads(file)
        assert value["name"] == f"kvviz-run.{kind}"
        return base64.b64decode(value["base64"]).decode()

    def open(self, content: str) -> bool:
        """True when something is shown because of it."""
        event = SimpleNamespace(content=content)
        return self.receive(self.files.open(self.request, event, *CONTROLS))  # type: ignore[arg-type]

    def receive(self, found: list[Any]) -> bool:
        """Take a frame as the page does."""
        run_id, stop, line, _, slider, *views = found
        assert len(found) == N_STREAM_CONTROLS + len(self.names)
        self._take(line, views)
        self.stop = stop
        if not isinstance(run_id, str):
            assert all(_is_skip(value) for value in (stop, slider, *views))
            return False
        self.run_id, self.slider = run_id, slider
        return True


def saved(make_context: Make, kind: str = "json", **request: Any) -> str:
    """A file of a run that was made."""
    keeper = Keeper(make_context())
    keeper.go(**request)
    return keeper.save(kind)


@pytest.mark.parametrize("kind", ["json", "html"])
def test_a_saved_run_is_shown_again_without_a_model_and_says_that_it_is_stored(
    make_context: Make, kind: str
) -> None:
    store = FakeStore()
    live, keeper = Keeper(make_context()), Keeper(make_context(store=store))
    live.go()
    assert keeper.open(live.save(kind))
    assert store.asked == []
    assert keeper.notice["kind"] == "info"
    assert keeper.notice["text"].startswith("Stored, not measured now: begun 20")
    assert keeper.stop.interactive is False
    assert keeper.slider.maximum == 5
    for side in "ab":
        panel, before = keeper.views[f"panel_{side}"], live.views[f"panel_{side}"]
        assert {metric["kind"] for metric in panel["metrics"]} == {"stored"}
        assert [m["value"] for m in panel["metrics"]] == [m["value"] for m in before["metrics"]]
        assert panel["segments"] == before["segments"]
        assert keeper.views[f"strip_{side}"]["kind"] == "stored"
    for name in ("memory", "tier_map", "tier_steps", "quant_error"):
        assert keeper.views[name]["figure"]["data"], name
    assert "A stored run has no attention maps" in json.dumps(keeper.views["attention"])


def test_the_other_tabs_show_the_opened_run(make_context: Make) -> None:
    context = make_context()
    keeper = Keeper(context)
    keeper.open(saved(make_context))
    keeper.enter("attention")
    assert "A stored run has no attention maps" in keeper.views["atlas_map"]["empty"]
    assert keeper.views["atlas_table"]["sides"][0]["columns"]
    assert keeper.views["atlas_replay"]["steps"] == 6
    assert "atlas_table" in keeper.act(step=2)
    slider, *found = OffloadHandlers(context).enter(keeper.request, keeper.run_id)
    assert slider.maximum == 5
    assert len(found) == len(OFFLOAD)
    assert all(json.loads(value) for value in found)


def test_what_is_looked_at_can_be_changed(make_context: Make) -> None:
    keeper = Keeper(make_context())
    keeper.open(saved(make_context))
    found = keeper.handlers.look(keeper.request, keeper.run_id, "1", *CONTROLS[1:])
    assert sum(not _is_skip(value) for value in found) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_opened_is_saved_as_it_was_read(make_context: Make, kind: str) -> None:
    first = saved(make_context)
    keeper = Keeper(make_context())
    keeper.open(first)
    again = keeper.save(kind)
    if kind == "csv":
        assert again.splitlines()[0].startswith("configuration,label,key")
        assert ",stored," in again
        assert ",measured," not in again
    else:
        assert read(again).comparison == read(first).comparison, "its own machine, versions and time"


def test_a_live_run_says_when_it_began_and_what_was_asked(make_context: Make) -> None:
    report = read(saved(make_context, prompt="Why?", tokens=4))
    assert report.comparison.created == report.comparison.created.strip() != ""
    assert report.comparison.asked.prompt == "Why?"
    assert [entry.label for entry in report.comparison.entries] == [r.label for r in report.records]
    assert [len(record.generated_ids) for record in report.records] == [4, 4]


def test_nothing_to_save_is_said(make_context: Make) -> None:
    keeper = Keeper(make_context(FakeEngine(pause_s=0.02)))
    assert keeper.save() == ""
    assert keeper.notice["kind"] == "error"
    assert "no run that has ended" in keeper.notice["text"]
    assert keeper.prepare(tokens=40)
    frames = keeper.stream()
    wait_for(lambda: next(frames, None) is None and bool(keeper.run.snapshot()[0].generated_ids))
    assert keeper.save() == "", "a run that is going"
    assert "no run that has ended" in keeper.notice["text"]
    keeper.handlers.stop(keeper.request)
    for _ in frames:
        pass
    assert {record.status for record in read(keeper.save()).records} == {"stopped"}


def entry_counts() -> dict[str, str]:
    """Reports that are none of the Run tab's."""
    report = make_report()
    return {
        "no records": to_json(Report(report.comparison)),
        "three configurations": to_json(Report(make_comparison(others=2))),
        "one configuration": to_json(Report(make_comparison(others=0))),
    }


@pytest.mark.parametrize("name", entry_counts())
def test_a_comparison_of_another_number_of_runs_is_refused_and_changes_nothing(
    make_context: Make, name: str
) -> None:
    keeper = Keeper(make_context())
    keeper.go()
    before, views = keeper.run_id, dict(keeper.views)
    assert not keeper.open(entry_counts()[name])
    assert keeper.notice["kind"] == "error"
    assert "open it in the Compare tab" in keeper.notice["text"]
    assert (keeper.run_id, keeper.views) == (before, views)
    assert not keeper.run.is_stored


@pytest.mark.parametrize("content", HOSTILE, ids=lambda content: content[:20])
def test_what_is_no_report_is_refused_in_a_sentence(make_context: Make, content: str) -> None:
    keeper = Keeper(make_context())
    assert not keeper.open(content)
    assert keeper.notice["kind"] == "error"
    assert keeper.notice["text"].endswith(".")
    assert len(keeper.context.runs) == 0


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_record_is_refused_in_a_sentence(make_context: Make, name: str) -> None:
    keeper = Keeper(make_context())
    assert not keeper.open(spoil(SPOILT[name]))
    assert keeper.notice["kind"] == "error"


def test_a_file_never_names_a_model_that_is_loaded(make_context: Make) -> None:
    store, recompute = FakeStore(), FakeRecompute()
    context = make_context(store=store, recompute=recompute)
    keeper = Keeper(context)
    keeper.open(to_json(make_report()))
    for event in ({"kind": "logits"}, {"kind": "tile", "side": 0, "row": 1, "column": 1}):
        line = keeper.wish(**event)
        assert line["kind"] == "error"
        assert "no model is loaded because a file names it" in line["text"]
        assert keeper.fulfil() == {}
    assert store.asked == []
    assert recompute.asked == []
    assert keeper.run.model == ""


def test_what_is_recomputed_for_the_run_before_ends(make_context: Make) -> None:
    keeper = Keeper(make_context())
    keeper.go()
    keeper.wish(kind="logits")
    stop = context_stop(keeper)
    keeper.open(to_json(make_report()))
    assert stop.is_set()
    desk = keeper.context.desks.get("one")
    assert desk.wish is None
    assert not desk.logits


def context_stop(keeper: Keeper) -> Any:
    """The switch of what is being recomputed."""
    desk = keeper.context.desks.get("one")
    assert isinstance(desk.wish, Wish)
    return desk.stop


def test_an_opened_run_takes_the_place_of_the_session_s_own_and_of_no_other(make_context: Make) -> None:
    context = make_context()
    one, two = Keeper(context), Keeper(context, "two")
    one.go()
    two.go()
    mine = two.run_id
    for _ in range(3):
        assert one.open(one.save())
    assert len(context.runs) == 2
    assert isinstance(one.run, OpenedRun)
    assert not context.runs.get(mine, "two").superseded  # type: ignore[union-attr]
    two.run_id = one.run_id
    assert two.save() == "", "the other's run cannot be saved"
    found = AtlasHandlers(context).enter(two.request, "attention", tuple(ATLAS), one.run_id)
    assert all(_is_skip(value) for value in found)


def test_what_was_opened_during_a_run_stays(make_context: Make) -> None:
    """A frame of the run may come after the answer to the click, so the stream ends with what was opened."""
    content = saved(make_context)
    engine = FakeEngine(pause_s=0.02)
    keeper = Keeper(make_context(engine))
    assert keeper.prepare(tokens=60)
    frames = keeper.handlers.stream(keeper.request, keeper.pending)
    going = keeper.run
    while not going.has_started:
        next(frames)
    assert keeper.open(content)
    opened = keeper.run_id
    late = list(frames)
    assert keeper.receive(late[-1])
    assert keeper.run_id == opened
    assert going.stop.is_set()
    assert {m["kind"] for m in keeper.views["panel_a"]["metrics"]} == {"stored"}
    wait_for(lambda: engine.closed == 1)
    keeper.go()
    assert not keeper.run.is_stored, "the next run works"
    assert {m["kind"] for m in keeper.views["panel_a"]["metrics"]} >= {"measured"}
    assert len(keeper.context.runs) == 1


def test_the_summary_is_the_engine_s(make_context: Make) -> None:
    keeper = Keeper(make_context())
    keeper.go()
    made = keeper.context.summarize(keeper.run.snapshot(), keeper.run.created)
    assert isinstance(made, Comparison)
    assert keeper.open(to_json(Report(made, tuple(keeper.run.snapshot()))))


def test_every_view_of_the_run_tab_is_filled(make_context: Make) -> None:
    keeper = Keeper(make_context())
    keeper.open(saved(make_context))
    assert set(VIEWS) <= set(keeper.views)
