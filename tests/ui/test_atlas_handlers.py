"""The Attention tab over a made-up engine: look, replay, recompute."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kvviz.figures.packing import unpack_numbers
from kvviz.ui.atlas import AtlasHandlers
from kvviz.ui.atlas_views import ATLAS
from kvviz.ui.context import AppContext
from kvviz.ui.desk import AtlasChoice, DeskStore
from kvviz.ui.recompute import RecomputeHandlers
from tests.ui.fakes import FakeEngine, FakeRecompute
from tests.ui.test_handlers import VIEWS, Client, _is_skip, wait_for

Make = Callable[..., AppContext]


class Visitor(Client):
    """A session that looks at the Attention tab."""

    def __init__(self, context: AppContext, session: str = "one") -> None:
        super().__init__(context, session)
        self.handlers = type(self.handlers)(context, (*VIEWS, *ATLAS))
        self.names = (*VIEWS, *ATLAS)
        self.atlas, self.recompute = AtlasHandlers(context), RecomputeHandlers(context)
        self.seq = 0

    def _take(self, notice: Any, views: list[Any]) -> None:
        super()._take(notice, [])
        pairs = zip(self.names, views, strict=False)
        self.views |= {name: json.loads(value) for name, value in pairs if not _is_skip(value)}

    def enter(self, tab: str) -> None:
        names = tuple(ATLAS) if tab == "attention" else VIEWS
        found = self.atlas.enter(self.request, tab, names, self.run_id)
        self.views |= {n: json.loads(v) for n, v in zip(names, found, strict=True) if not _is_skip(v)}

    def act(self, **change: Any) -> set[str]:
        """Ask for a change; the names of the views that were sent."""
        self.seq += 1
        event = SimpleNamespace(change=change, seq=self.seq)
        found = self.atlas.act(self.request, event, self.run_id)  # type: ignore[arg-type]
        sent = {n: json.loads(v) for n, v in zip(ATLAS, found, strict=True) if not _is_skip(v)}
        assert not sent or sent["atlas_replay"]["seq"] == self.seq, "every answer carries its number"
        self.views |= sent
        return set(sent)

    def wish(self, **event: Any) -> dict[str, Any]:
        """Ask for a recomputation; the notice."""
        line, view = self.recompute.wish(self.request, SimpleNamespace(**event), self.run_id)  # type: ignore[arg-type]
        if not _is_skip(view):
            self.views["atlas_map"] = json.loads(view)
        return {} if _is_skip(line) else json.loads(line)

    def fulfil(self) -> dict[str, Any]:
        """Wait for it; the last notice."""
        last: dict[str, Any] = {}
        for line, view in self.recompute.fulfil(self.request):
            last = last if _is_skip(line) else json.loads(line)
            if not _is_skip(view):
                self.views["atlas_map"] = json.loads(view)
        return last


def numbers(view: dict[str, Any]) -> list[float]:
    side = view["sides"][0]
    return (unpack_numbers(side["values"]) * side["unit"]).tolist()


def test_views_of_a_tab_that_is_not_visible_are_not_computed(make_context: Make) -> None:
    visitor = Visitor(make_context())
    visitor.go()
    assert "memory" in visitor.views
    assert not set(ATLAS) & set(visitor.views)
    visitor.views.clear()
    visitor.enter("attention")
    assert set(visitor.views) == set(ATLAS), "coming to the front it shows the run at once"
    visitor.views.clear()
    visitor.go(tokens=4)
    assert set(visitor.views) == set(ATLAS)
    assert visitor.views["atlas_replay"]["steps"] == 4
    visitor.views.clear()
    visitor.enter("run")
    assert set(visitor.views) == set(VIEWS)
    assert visitor.views["panel_a"]["state"] == "length"


def test_another_head_is_another_map_and_nothing_else(make_context: Make) -> None:
    visitor = Visitor(make_context())
    visitor.enter("attention")
    visitor.go()
    before = numbers(visitor.views["atlas_map"])
    assert visitor.act(layer=1, head=2) == {"atlas_replay", "atlas_map"}
    view = visitor.views["atlas_map"]
    assert (view["layer"], view["head"]) == (1, 2)
    record = visitor.run.snapshot()[0]
    assert record.attention is not None
    assert numbers(view) != before
    assert numbers(view)[1] == pytest.approx(100 * float(record.attention[1, 2, 1, 0]), abs=0.006)
    visitor.act(layer=99, head=-3)
    assert (visitor.views["atlas_map"]["layer"], visitor.views["atlas_map"]["head"]) == (1, 0)


def test_both_configurations_are_sent_together(make_context: Make) -> None:
    visitor = Visitor(make_context())
    visitor.enter("attention")
    visitor.go()
    assert visitor.act(shown="both") == {"atlas_replay", "atlas_thumbs", "atlas_map", "atlas_table"}
    assert [side["letter"] for side in visitor.views["atlas_map"]["sides"]] == ["A", "B"]
    assert [side["letter"] for side in visitor.views["atlas_table"]["sides"]] == ["A", "B"]
    assert visitor.views["atlas_thumbs"]["letters"] == ["A", "B"]
    assert visitor.act(shown="everything", mode="magic") == {"atlas_replay"}, "unknown words change nothing"


def test_the_replay_comes_from_the_record_without_a_model(make_context: Make) -> None:
    engine, recompute = FakeEngine(), FakeRecompute()
    visitor = Visitor(make_context(engine, recompute=recompute))
    visitor.enter("attention")
    visitor.go()
    told = engine.told
    sent = visitor.act(step=1)
    assert sent == {"atlas_replay", "atlas_table", "atlas_strip_a", "atlas_strip_b"}
    record = visitor.run.snapshot()[1]
    replay = visitor.views["atlas_replay"]
    assert replay["at"] == [1, 1]
    assert replay["memory"][1]["total"] == record.memory[1].used_bytes
    assert visitor.views["atlas_strip_b"]["count"] == 8 + 2
    assert "10 query rows" not in visitor.views["atlas_table"]["sides"][0]["rows"]
    assert f"{record.head_summary[1].rows} query rows" in visitor.views["atlas_table"]["sides"][0]["rows"]
    assert (engine.told, recompute.asked) == (told, [])
    visitor.go(tokens=3)
    assert visitor.views["atlas_replay"]["step"] is None, "a new run is followed"


def test_logits_are_recomputed_kept_for_the_layer_and_labelled(make_context: Make) -> None:
    recompute = FakeRecompute()
    visitor = Visitor(make_context(recompute=recompute))
    visitor.enter("attention")
    visitor.go()
    visitor.act(layer=1, head=0, mode="logits", shown="both")
    assert visitor.views["atlas_map"]["missing"]
    assert visitor.wish(kind="logits")["kind"] == "busy"
    assert visitor.views["atlas_map"]["busy"]
    assert visitor.fulfil()["text"] == ""
    view = visitor.views["atlas_map"]
    assert (view["missing"], view["busy"]) == (False, False)
    assert [side["high"] for side in view["sides"]] == [3.0, 3.0]
    assert [asked["run"] for asked in recompute.asked] == ["the full", "the full-stack"]
    visitor.act(head=3)
    assert not visitor.views["atlas_map"]["missing"], "all heads of the layer are there"
    visitor.act(layer=0)
    assert visitor.views["atlas_map"]["missing"]
    assert len(recompute.asked) == 2


def test_a_tile_is_shown_in_place_until_one_goes_back(make_context: Make) -> None:
    recompute = FakeRecompute()
    visitor = Visitor(make_context(recompute=recompute))
    visitor.enter("attention")
    visitor.go(tokens=80)
    visitor.act(layer=1, head=1)
    visitor.wish(kind="tile", side=0, row=70, column=12)
    visitor.fulfil()
    tile = visitor.views["atlas_map"]["tile"]
    asked = recompute.asked[0]
    assert asked == {"layer": 1, "rows": (23, 87), "columns": (0, 64)}
    assert (tile["first_row"], tile["rows"], tile["columns"]) == (23, 64, 64)
    assert tile["row_labels"][0] == "␠w23"
    assert set(unpack_numbers(tile["values"])) == {2500}
    visitor.act(head=2)
    assert visitor.views["atlas_map"]["tile"], "another head of the layer is in the tile as well"
    assert "atlas_map" in visitor.act(back=True)
    assert visitor.views["atlas_map"]["tile"] is None


def test_a_recomputation_can_be_stopped_and_the_map_stays(make_context: Make) -> None:
    recompute = FakeRecompute(gate=threading.Event())
    visitor = Visitor(make_context(recompute=recompute))
    visitor.enter("attention")
    visitor.go()
    visitor.act(mode="logits")
    visitor.wish(kind="logits")
    frames = visitor.recompute.fulfil(visitor.request)
    line, _ = next(frames)
    assert json.loads(line)["fraction"] == pytest.approx(0.5)
    visitor.recompute.cancel(visitor.request)
    *_, (line, view) = frames
    assert "Stopped" in json.loads(line)["text"]
    assert json.loads(view)["missing"]
    assert not json.loads(view)["busy"]


def test_nothing_is_recomputed_beside_a_run(make_context: Make) -> None:
    recompute = FakeRecompute()
    visitor = Visitor(make_context(FakeEngine(pause_s=0.02), recompute=recompute))
    visitor.enter("attention")
    assert visitor.prepare(tokens=60)
    frames = visitor.stream()
    wait_for(lambda: next(frames, None) is None and bool(visitor.run_id))
    assert visitor.wish(kind="logits")["kind"] == "error"
    assert visitor.fulfil() == {}
    assert recompute.asked == []
    frames.close()  # type: ignore[attr-defined]


def test_desks_are_apart_and_bounded() -> None:
    desks = DeskStore(AtlasChoice(layer=14, head=1), max_desks=3)
    desks.change("a", visible="attention")
    assert (desks.get("a").visible, desks.get("b").visible) == ("attention", "run")
    assert desks.get("b").choice.layer == 14
    stop = desks.get("a").stop
    desks.forget("a")
    assert stop.is_set()
    for i in range(9):
        desks.change(f"s{i}", visible="attention")
    assert [desks.get(f"s{i}").visible for i in (5, 6)] == ["run", "attention"]
