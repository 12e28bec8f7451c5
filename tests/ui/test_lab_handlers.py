"""Pressing an experiment's buttons, over made-up experiments and over a tiny model's real one."""

from __future__ import annotations

import base64
import csv
import io
import json
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from kvviz import lab
from kvviz.errors import KvvizError
from kvviz.experiment import ExperimentInfo, LabProgress, LabResult, table
from kvviz.ui import lab_views
from kvviz.ui.context import AppContext
from kvviz.ui.lab_handlers import N_OUTPUTS, LabHandlers
from kvviz.ui.lab_runs import LabRunStore

Make = Callable[..., AppContext]
NAME = "eviction"
SMALL = {"length": 300, "budget": 40, "skip": 60, "sinks": ["0", "4"]}


def info_of(name: str) -> ExperimentInfo:
    return next(info for info in lab.experiments() if info.name == name)


class FakeLab:
    """Tells progress until it is stopped or done, then fails or hands ``result`` over."""

    def __init__(self, result: LabResult | None = None, fault: Exception | None = None) -> None:
        self.result, self.fault = result, fault
        self.pieces, self.pause_s = 3, 0.0
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.closed = threading.Event()

    def experiments(self) -> list[ExperimentInfo]:
        return lab.experiments()

    def perform(
        self, model: Any, name: str, given: Mapping[str, Any], *, stop: threading.Event | None = None
    ) -> Iterator[LabProgress | LabResult]:
        self.asked.append((name, given))
        assert stop is not None
        return self._perform(stop)

    def _perform(self, stop: threading.Event) -> Iterator[LabProgress | LabResult]:
        try:
            for done in range(self.pieces):
                if stop.is_set():
                    raise KvvizError("lab_stopped")
                yield LabProgress(1024 * done, 4096, 90_000.0 if done else None)
                time.sleep(self.pause_s)
            if self.fault is not None:
                raise self.fault
            assert self.result is not None
            yield self.result
        finally:
            self.closed.set()


@pytest.fixture(scope="module")
def found(tiny) -> LabResult:
    """What an experiment really finds on a tiny model."""
    *_, result = lab.perform(tiny(), NAME, SMALL)
    assert isinstance(result, LabResult)
    return result


class Client:
    """One session at one experiment."""

    def __init__(self, context: AppContext, session: str = "one", name: str = NAME) -> None:
        self.context, self.session, self.info = context, session, info_of(name)
        self.handlers = LabHandlers(context, self.info)
        self.line: dict[str, Any] = {}
        self.lines: list[dict[str, Any]] = []
        self.shown = ""
        self.outputs: list[Any] = []

    @property
    def request(self) -> gr.Request:
        return SimpleNamespace(session_hash=self.session)  # type: ignore[return-value]

    def prepare(self, model: str = "tiny", **given: Any) -> str:
        values = [given.get(control.key, control.default) for control in self.info.controls]
        pending, _, line = self.handlers.prepare(self.request, model, *values)
        self.line = json.loads(line)
        return str(pending)

    def watch(self, pending: str) -> Iterator[None]:
        for outputs in self.handlers.stream(self.request, pending):
            assert len(outputs) == N_OUTPUTS
            self.outputs = outputs
            if isinstance(outputs[0], str):
                self.shown = outputs[0]
            if isinstance(outputs[4], str):
                self.line = json.loads(outputs[4])
                self.lines.append(self.line)
            yield

    def go(self, **given: Any) -> None:
        for _ in self.watch(self.prepare(**given)):
            pass

    def file(self, kind: str) -> tuple[str, bytes]:
        offered = json.loads(getattr(self.handlers, kind)(self.request, self.shown))
        return offered["name"], base64.b64decode(offered["base64"])


def context_with(make_context: Make, fake: FakeLab, monkeypatch: pytest.MonkeyPatch) -> AppContext:
    context = make_context()
    object.__setattr__(context, "lab", fake)
    monkeypatch.setattr("kvviz.ui.lab_handlers.TICK", 0.02)
    return context


def test_a_result_is_shown_with_figures_tables_and_files(make_context, monkeypatch, found):
    client = Client(context_with(make_context, FakeLab(found), monkeypatch))
    client.go()
    _, stop, csv_button, json_button, _, finding, *plots, tables = client.outputs
    assert (stop.interactive, csv_button.interactive, json_button.interactive) == (False, True, True)
    assert json.loads(finding)["text"] == found.finding
    drawn = [json.loads(plot) for plot in plots]
    assert drawn[0]["figure"]["data"]
    assert drawn[0]["heading"] == drawn[0]["name"] != ""
    shown = json.loads(tables)["tables"]
    assert [len(table["cells"]) for table in shown] == [len(t.rows) for t in found.tables.values()]
    assert [table["open"] for table in shown] == [True] + [False] * (len(shown) - 1)
    assert all(column["info"] for table in shown for column in table["columns"])
    name, content = client.file("json")
    assert name == f"kvviz-{NAME}.json"
    assert json.loads(content)["finding"] == found.finding
    name, content = client.file("csv")
    assert name == f"kvviz-{NAME}.csv"
    rows = list(csv.reader(io.StringIO(content.decode())))
    main = next(iter(found.tables.values()))
    assert rows[0] == [column.key for column in main.columns]
    assert len(rows) == 1 + len(main.rows)


def test_several_tables_come_zipped(found):
    both = replace(found, tables=found.tables | {"more": table([("sinks", "count")], [(4,)])})
    offered = lab_views.download(both, "csv")
    assert offered["name"] == f"kvviz-{NAME}-csv.zip"
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(offered["base64"]))) as archive:
        assert archive.namelist() == [f"{NAME}-configurations.csv", f"{NAME}-more.csv"]
        assert archive.read(f"{NAME}-more.csv") == b"sinks\n4\n"


def test_progress_comes_with_an_estimate(make_context, monkeypatch, found):
    fake = FakeLab(found)
    fake.pause_s = 0.4
    client = Client(context_with(make_context, fake, monkeypatch))
    client.go()
    told = [line for line in client.lines if "90 s left" in line["text"]]
    assert told
    assert told[-1]["text"].startswith("2,048 of 4,096 tokens")
    assert told[-1]["fraction"] == 0.5
    assert "Done in" in client.line["text"]


def test_stop_ends_it_and_says_so(make_context, monkeypatch, found):
    fake = FakeLab(found)
    fake.pieces, fake.pause_s = 10_000, 0.01
    client = Client(context_with(make_context, fake, monkeypatch))
    watching = client.watch(client.prepare())
    next(watching)
    client.handlers.stop(client.request)
    for _ in watching:
        pass
    assert fake.closed.wait(2)
    assert client.line["kind"] == "error"
    assert "stopped" in client.line["text"]
    assert client.shown == ""


def test_a_watcher_that_goes_away_stops_it(make_context, monkeypatch, found):
    fake = FakeLab(found)
    fake.pieces, fake.pause_s = 10_000, 0.01
    client = Client(context_with(make_context, fake, monkeypatch))
    watching = client.watch(client.prepare())
    next(watching)
    watching.close()
    assert fake.closed.wait(2)


@pytest.mark.parametrize("fault", [KvvizError("lab_stopped"), RuntimeError("made to fail")])
def test_a_failure_is_one_sentence(make_context, monkeypatch, fault):
    client = Client(context_with(make_context, FakeLab(fault=fault), monkeypatch))
    client.go()
    assert client.line["kind"] == "error"
    assert "made to fail" not in client.line["text"]
    assert client.line["text"]


def test_a_refused_setting_asks_nothing(make_context, monkeypatch, found):
    fake = FakeLab(found)
    client = Client(context_with(make_context, fake, monkeypatch))
    number = next(control for control in client.info.controls if control.kind == "int")
    assert client.prepare(**{number.key: number.high + 1}) == ""
    assert client.line["kind"] == "error"
    assert str(number.high) in client.line["text"]
    assert client.prepare(model=" ") == ""
    assert fake.asked == []


def test_results_belong_to_their_session(make_context, monkeypatch, found):
    context = context_with(make_context, FakeLab(found), monkeypatch)
    one, two = Client(context, "one"), Client(context, "two")
    one.go()
    two.shown = one.shown
    assert two.handlers.json(two.request, one.shown) == gr.skip()
    context.lab_runs.forget("one")
    assert one.handlers.json(one.request, one.shown) == gr.skip()


def test_one_experiment_at_a_time_for_each_person():
    from kvviz.ui.lab_runs import LabRun

    store = LabRunStore(max_runs=2)
    runs = [LabRun(session, "sink", "tiny", {}) for session in ("one", "two", "one")]
    for run in runs:
        store.add(run)
    assert [run.stop.is_set() for run in runs] == [True, False, False]


@pytest.mark.parametrize(
    ("unit", "cell", "words"),
    [
        ("share", 0.3141, "31.4 %"), ("count", 2048, "2,048"), ("ppl", 22.5071, "22.51"),
        ("nats", 0.00065, "0.0006500"), ("norm", 12345.6, "12346"), ("text", "␠a", "␠a"), ("nats", None, "–"),
        ("bytes", 2048, "2.00 KiB"), ("nats", 0.0, "0"),
    ],
)  # fmt: skip
def test_cells_are_written_as_people_read_them(unit, cell, words):
    assert lab_views.cell_words(cell, unit) == words


def test_estimates_are_told_roundly():
    assert lab_views.about(400) == "1 s"
    assert lab_views.about(75_400) == "75 s"
    assert lab_views.about(400_000) == "7 min"
