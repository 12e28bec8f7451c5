"""Where one session stands in the lessons: predictions that cannot be taken back, and what was run.

Plain values and the store that holds them; knows lessons and verdicts, no component and no result. A course
lives as long as the session's page.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kvviz.errors import KvvizError
from kvviz.lessons import LESSONS, Score, lesson, read_answer
from kvviz.lessons.lesson import Answer, Source

MAX_COURSES = 500


@dataclass(frozen=True, slots=True)
class Station:
    """One lesson: ``answers`` by question once they are locked in, what is shown, and its score."""

    answers: Mapping[str, Answer] = field(default_factory=dict)
    is_locked: bool = False
    shown: Source | Literal[""] = ""
    run_id: str = ""  # of the live run that is shown
    score: Score | None = None  # of the first run that was shown; a second one changes no point


@dataclass(frozen=True, slots=True)
class Course:
    """All lessons of a session. An ``instructor`` may run without predicting; what is ``held`` back from the
    class are the answers."""

    current: str = LESSONS[0].key
    stations: Mapping[str, Station] = field(default_factory=dict)
    instructor: bool = False
    held: bool = False

    def station(self, key: str | None = None) -> Station:
        """Of the current lesson, or of another."""
        return self.stations.get(key or self.current, Station())

    def change(self, key: str | None = None, **changes: Any) -> Course:
        """The current lesson's station changed, or another's."""
        changed = replace(self.station(key), **changes)
        return replace(self, stations={**self.stations, key or self.current: changed})

    def go(self, key: object) -> Course:
        """At another lesson.

        Raises:
            ConfigError: there is none of that name.
        """
        return replace(self, current=lesson(str(key)).key)

    def lock(self, given: Mapping[str, Any]) -> Course:
        """With the current lesson's predictions locked in.

        Raises:
            KvvizError: they are locked already, or one of them is missing or not a possible answer.
        """
        if self.station().is_locked:
            raise KvvizError("lesson_locked")
        questions = lesson(self.current).questions
        answers = {question.key: read_answer(question, given.get(question.key)) for question in questions}
        return self.change(answers=answers, is_locked=True)

    @property
    def may_run(self) -> bool:
        """A prediction comes first, but for an instructor."""
        return self.instructor or self.station().is_locked

    @property
    def total(self) -> tuple[Score, int]:
        """Points of all lessons that have been run, and how many these are."""
        scores = [station.score for station in self.stations.values() if station.score is not None]
        return Score(sum(s.got for s in scores), sum(s.most for s in scores)), len(scores)


def opened(query: Mapping[str, str], course: Course) -> Course:
    """The course as a link asks for it: ``lesson``, ``instructor=1``, ``answers=revealed|held``.

    What a link says wrong is left out: it opens the first lesson.
    """
    if query.get("lesson") in [known.key for known in LESSONS]:
        course = replace(course, current=query["lesson"])
    if query.get("instructor") in ("1", "true"):
        course = replace(course, instructor=True, held=query.get("answers") != "revealed")
    return course


class CourseStore:
    """One course a session, the least recently used dropped first. Belongs to one application."""

    def __init__(self, max_courses: int = MAX_COURSES) -> None:
        self._max_courses = max_courses
        self._lock = threading.Lock()
        self._courses: OrderedDict[str, Course] = OrderedDict()

    def get(self, session: str) -> Course:
        """The session's course as it is now."""
        with self._lock:
            return self._courses.get(session) or Course()

    def change(self, session: str, how: Callable[[Course], Course]) -> Course:
        """Put the course into another state; what ``how`` refuses leaves it as it was."""
        with self._lock:
            course = how(self._courses.get(session) or Course())
            self._courses[session] = course
            self._courses.move_to_end(session)
            while len(self._courses) > self._max_courses:
                self._courses.popitem(last=False)
            return course

    def forget(self, session: str) -> None:
        """The session is gone."""
        with self._lock:
            self._courses.pop(session, None)
