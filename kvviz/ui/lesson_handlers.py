"""What happens when a person acts in a lesson: turn to it, lock a prediction in, look at a run, run it live.

Knows courses, the store of live runs and the views; does not know the layout, nor what a lesson asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import gradio as gr

from kvviz import lessons
from kvviz.errors import KvvizError
from kvviz.lessons import Score
from kvviz.ui import lesson_evidence, lesson_figures, lesson_links, lesson_nav, lesson_views
from kvviz.ui.components import encode
from kvviz.ui.context import AppContext
from kvviz.ui.form import FormError
from kvviz.ui.lesson_course import Course, opened
from kvviz.ui.lesson_links import TAB
from kvviz.ui.lesson_runs import LessonRun
from kvviz.ui.line import place_notice
from kvviz.ui.links import refused_words
from kvviz.ui.status import load_notice
from kvviz.ui.views import notice

SKIP = gr.skip()
TICK = 0.5
#: navigation, lesson, line, figures, explanation, tables
N_VIEWS = 3 + lesson_figures.MOST_FIGURES + 2
_NAV, _LINE = 0, 2  # their places

Views: TypeAlias = list[Any]


class LessonHandlers:
    """Bound to one application's context."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    def arrive(self, request: gr.Request, search: str) -> Views:
        """The page as its link asks for it: the views, and the tab when a lesson or an instructor is named.
        A link that is refused is told on top of its tab, and the course is as it was."""
        query = str(search or "")
        try:
            said = lesson_links.read(query)
        except KvvizError as error:
            course = self._context.courses.get(str(request.session_hash))
            views = self._all(request, course)
            if not lesson_links.lesson_link().is_named(query):
                return [*views, SKIP]
            views[_NAV] = encode(lesson_nav.nav_view(course, refused=refused_words(error)))
            return [*views, gr.Tabs(selected=TAB)]
        course = self._change(request, lambda course: opened(said or {}, course))
        return [*self._all(request, course), SKIP if said is None else gr.Tabs(selected=TAB)]

    def act(self, request: gr.Request, event: gr.EventData) -> Views:
        """One press, named by ``event.action``."""
        action = str(getattr(event, "action", ""))
        try:
            match action:
                case "go":
                    key = getattr(event, "lesson", "")
                    course = self._change(request, lambda course: course.go(key))
                    return self._all(request, course, moved=True)
                case "lock":
                    given = getattr(event, "answers", {})
                    answers = given if isinstance(given, Mapping) else {}
                    return self._all(request, self._change(request, lambda course: course.lock(answers)))
                case "stored":
                    return self._all(request, self._change(request, self._stored))
                case "reveal":
                    return self._all(request, self._change(request, _turned))
                case "stop":
                    self._context.lab_runs.stop(str(request.session_hash))
        except KvvizError as error:
            return _only_line(notice(str(error), "error"))
        return [SKIP] * N_VIEWS

    def prepare(self, request: gr.Request, model: str) -> list[Any]:
        """Lay a live run of the current lesson ready: its id, the lesson, the line."""
        course = self._context.courses.get(str(request.session_hash))
        if not course.may_run:
            return ["", SKIP, SKIP]
        lesson = lessons.lesson(course.current)
        try:
            name = str(model or "").strip()
            if not name:
                raise FormError("model_missing")
            self._context.hosting.limits.check_model(name)
            self._check_model(lesson, name)
        except KvvizError as error:
            return ["", SKIP, encode(notice(str(error), "error"))]
        run = LessonRun(str(request.session_hash), lesson.key, name, lesson.tasks)
        self._context.lab_runs.add(run)
        view = lesson_views.lesson_view(course, self._live(request, course), is_running=True)
        return [run.id, encode(view), encode(self._line(run))]

    def stream(self, request: gr.Request, pending: str) -> Iterator[Views]:
        """Carry the run and tell how far it is; in the end show what it found, if its lesson is open."""
        run = self._context.lab_runs.get(pending, str(request.session_hash))
        if not isinstance(run, LessonRun) or not run.start(lambda: self._perform(run)):
            yield [SKIP] * N_VIEWS
            return
        try:
            shown = ""
            while not run.wait(TICK):
                line = self._line(run)
                if encode(line) != shown and self._is_open(request, run):
                    shown = encode(line)
                    yield _only_line(line)
            yield self._outcome(request, run)
        finally:
            run.stop.set()

    # -- inside ----------------------------------------------------------------------------------

    def _perform(self, run: LessonRun) -> Any:
        return run.perform(self._context.lab, self._context.loader.get(run.model))

    def _check_model(self, lesson: lessons.Lesson, name: str) -> None:
        """A lesson that speaks of one model's shape is not run on another."""
        facts = lesson_evidence.stored_evidence(lesson).results[lesson.tasks[0].name].model
        if lesson.bound and name not in (facts.name, facts.source):
            raise KvvizError("lesson_model", model=facts.name, given=name)

    def _outcome(self, request: gr.Request, run: LessonRun) -> Views:
        line = self._line(run)
        if run.result is not None:
            self._change(request, lambda course: self._scored(course, run))
        if not self._is_open(request, run):
            return [SKIP] * N_VIEWS
        course = self._context.courses.get(str(request.session_hash))
        views = self._all(request, course)
        views[_LINE] = encode(line)
        return views

    def _scored(self, course: Course, run: LessonRun) -> Course:
        changed = course.change(run.experiment, shown="live", run_id=run.id)
        return _with_score(changed, run.experiment, run)

    def _stored(self, course: Course) -> Course:
        if not course.may_run:
            raise KvvizError("lesson_empty")
        return _with_score(course.change(shown="stored"), course.current, None)

    def _is_open(self, request: gr.Request, run: LessonRun) -> bool:
        return self._context.courses.get(str(request.session_hash)).current == run.experiment

    def _line(self, run: LessonRun) -> dict[str, Any]:
        if (waiting := place_notice(self._context.hosting.line, run.stop)) is not None:
            return waiting
        state = self._context.loader.state(run.model)
        return lesson_views.progress(run, load_notice(state), is_loaded=state.phase == "ready")

    def _change(self, request: gr.Request, how: Any) -> Course:
        return self._context.courses.change(str(request.session_hash), how)

    def _live(self, request: gr.Request, course: Course) -> LessonRun | None:
        run = self._context.lab_runs.get(course.station().run_id, str(request.session_hash))
        return run if isinstance(run, LessonRun) else None

    def _all(self, request: gr.Request, course: Course, *, moved: bool = False) -> Views:
        """Every view of the current lesson; the line is quiet."""
        live = self._live(request, course)
        try:
            views = [
                lesson_nav.nav_view(course, moved=moved), lesson_views.lesson_view(course, live), notice(),
                *lesson_figures.plots(course, live), lesson_views.tell_view(course, live),
                lesson_figures.tables(course, live),
            ]  # fmt: skip
        except KvvizError as error:
            return _only_line(notice(str(error), "error"))
        return [encode(view) for view in views]


def _only_line(line: dict[str, Any]) -> Views:
    return [encode(line) if place == _LINE else SKIP for place in range(N_VIEWS)]


def _turned(course: Course) -> Course:
    return replace(course, held=not course.held) if course.instructor else course


def _with_score(course: Course, key: str, live: LessonRun | None) -> Course:
    """The first run that is shown after the prediction decides the points."""
    lesson, station = lessons.lesson(key), course.station(key)
    if station.score is not None or not station.is_locked:
        return course
    evidence = lesson_evidence.evidence_of(lesson, station, live)
    assert evidence is not None
    verdicts = lesson_evidence.judged(lesson, station, evidence)
    return course.change(key, score=Score.of(list(verdicts.values())))
