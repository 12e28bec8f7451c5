"""A session in the lessons: predict, run stored or live, and read the verdicts with the run's own numbers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from kvviz import lab, lessons
from kvviz.errors import KvvizError
from kvviz.experiment import ExperimentInfo, LabProgress, LabResult
from kvviz.lessons import check
from kvviz.ui.context import AppContext
from kvviz.ui.lesson_handlers import N_VIEWS, SKIP, LessonHandlers
from kvviz.ui.lesson_runs import LessonRun
from kvviz.units import format_share

Make = Callable[..., AppContext]
RIGHT = {"heads": "most", "repeated": "gone"}
WRONG = {"heads": "few", "repeated": "stays"}
NAV, ASKED, LINE, PLOT, _, TOLD, TABLES = range(N_VIEWS)


class FakeLab:
    """Hands over the stored results as if they had been measured, changed by ``change``; or fails."""

    def __init__(self, change: Callable[[LabResult], LabResult] = lambda result: result) -> None:
        self.change, self.pause_s = change, 0.0
        self.fault: Exception | None = None
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    def experiments(self) -> list[ExperimentInfo]:
        return lab.experiments()

    def perform(
        self, model: Any, name: str, given: Mapping[str, Any], *, stop: threading.Event | None = None
    ) -> Iterator[LabProgress | LabResult]:
        assert stop is not None
        self.asked.append((name, given))
        for done in range(4):
            if stop.is_set():
                raise KvvizError("lab_stopped")
            yield LabProgress(100 * done, 400, 5000.0)
            time.sleep(self.pause_s)
        if self.fault is not None:
            raise self.fault
        task = next(t for t in lessons.tasks().values() if (t.experiment, t.settings) == (name, given))
        yield self.change(lessons.load(task.name))


class Student:
    """One session, its page's views as they are now."""

    def __init__(self, context: AppContext, session: str = "one", **query: str) -> None:
        self.context, self.handlers = context, LessonHandlers(context)
        self.request: Any = SimpleNamespace(session_hash=session)
        self.views: list[Any] = [None] * N_VIEWS
        self.updates = 0
        *views, self.tab = self.handlers.arrive(self.request, f"?{urlencode(query)}")
        self._take(views)

    def _take(self, views: list[Any]) -> None:
        assert len(views) == N_VIEWS
        for place, view in enumerate(views):
            if view is not SKIP and not (isinstance(view, dict) and view.get("__type__") == "update"):
                self.views[place] = json.loads(view)
        self.updates += 1

    def act(self, action: str, **more: Any) -> None:
        event: Any = SimpleNamespace(action=action, **more)
        self._take(self.handlers.act(self.request, event))

    def predict(self, **answers: Any) -> None:
        self.act("lock", answers=answers)

    def live(self, model: str = "tiny") -> str:
        pending, asked, line = self.handlers.prepare(self.request, model)
        self._take([SKIP, asked, line, *[SKIP] * (N_VIEWS - 3)])
        return pending

    def follow(self, pending: str) -> None:
        for views in self.handlers.stream(self.request, pending):
            self._take(views)

    @property
    def line(self) -> dict[str, Any]:
        return self.views[LINE]

    def verdicts(self) -> dict[str, Any]:
        return {q["key"]: q["verdict"] for q in self.views[ASKED]["questions"]}

    def enabled(self) -> set[str]:
        buttons = self.views[ASKED]["buttons"]
        return {name for name, one in buttons.items() if one["enabled"] and one["shown"]}


@pytest.fixture
def at_sink(make_context: Make) -> Callable[..., Student]:
    """A student who followed the link to the lesson on sinks."""

    def make(lab_: Any = None, session: str = "one", **query: str) -> Student:
        context = replace(make_context(), lab=lab_ or FakeLab())
        return Student(context, session, lesson="sink", **query)

    return make


def weight() -> float:
    """What the stored run measured."""
    rates = lessons.load("sink").tables["rates"]
    return float(rates.rows[0][[c.key for c in rates.columns].index("mean_weight")])  # type: ignore[arg-type]


def test_a_whole_lesson_right(at_sink):
    student = at_sink()
    assert student.views[NAV]["key"] == "sink"
    assert student.tab.selected == "lessons"
    assert student.enabled() == {"lock"}
    assert student.views[PLOT]["figure"] is None
    student.predict(weight=str(round(100 * weight())), **RIGHT)
    assert student.enabled() == {"stored", "live"}
    assert all(question["locked"] for question in student.views[ASKED]["questions"])
    student.act("stored")
    verdicts = student.verdicts()
    assert [verdict["kind"] for verdict in verdicts.values()] == ["right"] * 3
    assert format_share(weight()) in verdicts["weight"]["words"]
    assert "stored" in student.views[ASKED]["source"]
    assert student.views[PLOT]["figure"]["data"]
    assert student.views[TOLD]["paragraphs"]
    assert student.views[TABLES]["tables"]
    assert "3 of 3" in student.views[NAV]["total"]


def test_a_whole_lesson_wrong(at_sink):
    student = at_sink()
    student.predict(weight="99", **WRONG)
    student.act("stored")
    verdicts = student.verdicts()
    assert {verdict["kind"] for verdict in verdicts.values()} == {"wrong"}
    assert "99.0 %" in verdicts["weight"]["said"]
    assert format_share(weight()) in verdicts["weight"]["measured"]
    assert "0 of 3" in student.views[NAV]["total"]


def test_a_locked_prediction_cannot_be_changed(at_sink):
    student = at_sink()
    student.predict(weight="5", **WRONG)
    student.predict(weight="40", **RIGHT)
    assert "cannot be changed" in student.line["text"]
    student.act("stored")
    assert student.verdicts()["heads"]["kind"] == "wrong"


@pytest.mark.parametrize("answers", [{}, {"weight": "x", **RIGHT}, {"weight": "5", "heads": "most"}])
def test_what_is_not_whole_is_refused_and_nothing_runs(at_sink, answers):
    student = at_sink()
    student.predict(**answers)
    assert student.line["kind"] == "error"
    assert student.enabled() == {"lock"}
    student.act("stored")
    assert student.views[PLOT]["figure"] is None
    assert student.live() == ""
    assert student.context.lab.asked == []


@pytest.mark.parametrize("action", ["", "explode", "go"])
def test_odd_presses_do_nothing(at_sink, action):
    student = at_sink()
    student.act(action, lesson="nowhere", answers=[1, 2])
    assert student.views[NAV]["key"] == "sink"


def test_a_live_run_is_judged_by_its_own_numbers(at_sink):
    def other_model(result: LabResult) -> LabResult:
        """A model without a sink."""
        rates = result.tables["rates"]
        keys = [column.key for column in rates.columns]
        rows = [
            tuple(0.001 if key == "sink_rate" else 0.02 if key == "mean_weight" else cell
                  for key, cell in zip(keys, row, strict=True))
            for row in rates.rows
        ]  # fmt: skip
        return replace(result, tables=result.tables | {"rates": replace(rates, rows=tuple(rows))})

    student = at_sink(FakeLab(other_model))
    student.predict(weight="2", heads="few", repeated="stays")
    pending = student.live()
    assert student.enabled() == {"stop"}
    student.follow(pending)
    assert student.line["text"] == ""
    verdicts = student.verdicts()
    assert [verdict["kind"] for verdict in verdicts.values()] == ["right"] * 3
    assert "2.0 %" in verdicts["weight"]["words"]
    assert student.views[ASKED]["source"].startswith("live")
    assert "3 of 3" in student.views[NAV]["total"]
    student.act("stored")  # the stored run says otherwise; the points stay
    assert student.verdicts()["heads"]["kind"] == "wrong"
    assert "3 of 3" in student.views[NAV]["total"]


def test_several_tasks_are_done_one_after_another(at_sink):
    student = at_sink()
    student.act("go", lesson="bits")
    assert student.views[NAV]["moved"]
    student.predict(side="key", halving="far", layer="last")
    student.follow(student.live())
    assert [name for name, _ in student.context.lab.asked] == ["key-or-value", "key-or-value", "first-layer"]
    assert student.views[ASKED]["source"].startswith("live")
    assert student.views[1 + LINE + 1]["figure"] is not None, "a figure of the last task"


def test_stop_ends_a_live_run_and_the_lesson_stays(at_sink):
    slow = FakeLab()
    slow.pause_s = 0.3
    student = at_sink(slow)
    student.predict(weight="40", **RIGHT)
    pending = student.live()
    followed = threading.Thread(target=student.follow, args=(pending,))
    followed.start()
    time.sleep(0.2)
    student.act("stop")
    followed.join(10)
    assert not followed.is_alive()
    assert "stopped" in student.line["text"]
    assert student.enabled() == {"stored", "live"}
    assert student.views[PLOT]["figure"] is None
    assert student.verdicts()["heads"] is None


def test_a_failed_run_says_so_and_another_works(at_sink):
    failing = FakeLab()
    failing.fault = RuntimeError("made to fail")
    student = at_sink(failing)
    student.predict(weight="40", **RIGHT)
    student.follow(student.live())
    assert student.line["kind"] == "error"
    failing.fault = None
    student.follow(student.live())
    assert student.verdicts()["heads"]["kind"] == "right"


def test_whoever_turns_the_page_is_not_disturbed_by_a_run(at_sink):
    slow = FakeLab()
    slow.pause_s = 0.2
    student = at_sink(slow)
    student.predict(weight="40", **RIGHT)
    pending = student.live()
    followed = threading.Thread(target=student.follow, args=(pending,))
    followed.start()
    student.act("go", lesson="window")
    followed.join(10)
    assert student.views[NAV]["key"] == "window"
    assert student.views[PLOT]["figure"] is None
    student.act("go", lesson="sink")
    assert student.verdicts()["heads"]["kind"] == "right"


def test_a_lesson_on_one_model_s_shape_is_not_run_on_another(at_sink):
    student = at_sink()
    student.act("go", lesson="arithmetic")
    student.predict(token="23040", twice="twice", target="2")
    assert student.live("other-model") == ""
    assert "SmolLM2-135M-Instruct" in student.line["text"]
    student.act("stored")
    assert [verdict["kind"] for verdict in student.verdicts().values()] == ["right"] * 3
    assert student.views[TABLES]["tables"][0]["open"]


def test_a_pick_is_scored(at_sink):
    student = at_sink()
    student.act("go", lesson="budget")
    (question,) = lessons.lesson("budget").questions
    evidence = lessons.Evidence({"budget": lessons.load("budget")})
    scores = question.scores(evidence)
    fitting = [name for name, score in scores.items() if score is not None and 0 < score < 1]
    student.predict(cache=fitting[0])
    student.act("stored")
    verdict = student.verdicts()["cache"]
    points = f"{100 * check(question, fitting[0], evidence).score:.0f}"
    assert points in verdict["title"]
    assert f"{points} points" in verdict["words"]


def test_an_instructor_holds_the_answers_back_and_reveals_them(at_sink):
    student = at_sink(instructor="1")
    assert student.views[NAV]["instructor"]
    assert student.enabled() == {"lock", "stored", "live", "reveal"}
    student.act("stored")
    assert student.views[PLOT]["figure"]["layout"]["font"]["size"] > 15, "larger type"
    assert set(student.verdicts().values()) == {None}
    assert student.views[TOLD]["paragraphs"] == []
    student.act("reveal")
    told = student.verdicts()
    assert {verdict["kind"] for verdict in told.values()} == {"told"}
    assert format_share(weight()) in told["weight"]["words"]
    assert student.views[TOLD]["paragraphs"]
    student.act("reveal")
    assert set(student.verdicts().values()) == {None}


def test_a_student_cannot_reveal(at_sink):
    student = at_sink()
    student.act("reveal")
    student.act("stored")
    assert student.views[PLOT]["figure"] is None


def test_sessions_do_not_see_one_another(make_context: Make):
    context = replace(make_context(), lab=FakeLab())
    one, two = (Student(context, name, lesson="sink") for name in ("one", "two"))
    one.predict(weight="40", **RIGHT)
    two.predict(weight="1", **WRONG)
    pending = one.live()
    two.follow(pending)  # somebody else's run
    assert two.verdicts()["heads"] is None
    one.follow(pending)
    two.act("stored")
    assert one.verdicts()["heads"]["kind"] == "right"
    assert two.verdicts()["heads"]["kind"] == "wrong"


def test_without_a_link_the_page_opens_at_its_first_tab(make_context: Make):
    student = Student(replace(make_context(), lab=FakeLab()))
    assert student.tab == SKIP
    assert student.views[NAV]["key"] == lessons.LESSONS[0].key


def test_a_live_run_that_is_gone_gives_way_to_the_stored(at_sink):
    student = at_sink()
    student.predict(weight="40", **RIGHT)
    student.follow(student.live())
    student.context.lab_runs.forget("one")
    student.act("go", lesson="window")
    student.act("go", lesson="sink")
    assert student.views[ASKED]["source"].startswith("stored")
    assert "no longer kept" in student.views[ASKED]["note"]


def test_a_run_carries_its_tasks_by_name():
    task = lessons.tasks()["sink"]
    run = LessonRun("s", "sink", "tiny", [task])
    events = list(run.perform(_stub(), None))
    assert run.results == {"sink": events[-1]}
    assert run.number == 1


def _stub() -> Any:
    class Instant:
        def perform(self, *given: Any, stop: Any = None) -> Iterator[Any]:
            yield LabProgress(0, 1, None)
            yield lessons.load("sink")

    return Instant()
