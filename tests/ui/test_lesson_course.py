"""Where a session stands: predictions that cannot be taken back, links, points, and stores apart."""

from __future__ import annotations

import pytest

from kvviz.errors import ConfigError, KvvizError
from kvviz.lessons import LESSONS, Score
from kvviz.ui.lesson_course import Course, CourseStore, opened

ANSWERS = {"weight": "35", "heads": "most", "repeated": "gone"}


def test_a_prediction_is_locked_once():
    course = Course().go("sink").lock(ANSWERS)
    assert course.station().answers == {"weight": 0.35, "heads": "most", "repeated": "gone"}
    assert course.may_run
    with pytest.raises(KvvizError, match="cannot be changed"):
        course.lock(ANSWERS | {"heads": "few"})


@pytest.mark.parametrize(
    "given", [{}, ANSWERS | {"heads": ""}, ANSWERS | {"heads": "all"}, ANSWERS | {"weight": "lots"}]
)
def test_a_prediction_must_be_whole(given):
    course = Course().go("sink")
    with pytest.raises(ConfigError):
        course.lock(given)
    assert not course.may_run


def test_each_lesson_stands_alone():
    course = Course().go("sink").lock(ANSWERS).go("window")
    assert not course.station().is_locked
    assert course.station("sink").is_locked
    with pytest.raises(ConfigError, match="no lesson"):
        course.go("nowhere")


def test_points_are_those_of_lessons_that_were_run():
    course = Course().go("sink").lock(ANSWERS).change(score=Score(2.5, 3))
    course = course.go("window").change("window", is_locked=True)
    assert course.total == (Score(2.5, 3), 1)


@pytest.mark.parametrize(
    ("query", "current", "instructor", "held"),
    [
        ({}, LESSONS[0].key, False, False),
        ({"lesson": "sink"}, "sink", False, False),
        ({"lesson": "<script>"}, LESSONS[0].key, False, False),
        ({"lesson": "sink", "instructor": "1"}, "sink", True, True),
        ({"instructor": "true", "answers": "revealed"}, LESSONS[0].key, True, False),
        ({"instructor": "0"}, LESSONS[0].key, False, False),
        ({"answers": "revealed"}, LESSONS[0].key, False, False),
    ],
)
def test_what_a_link_asks_for(query, current, instructor, held):
    course = opened(query, Course())
    assert (course.current, course.instructor, course.held) == (current, instructor, held)


def test_an_instructor_may_run_without_predicting():
    assert opened({"instructor": "1"}, Course()).may_run


def test_sessions_are_apart_and_the_oldest_goes_first():
    store = CourseStore(max_courses=2)
    store.change("a", lambda course: course.go("sink"))
    assert store.get("b") == Course()
    store.change("b", lambda course: course.go("bits"))
    store.change("a", lambda course: course)
    store.change("c", lambda course: course.go("window"))
    assert [store.get(name).current for name in "abc"] == ["sink", LESSONS[0].key, "window"]
    store.forget("a")
    assert store.get("a") == Course()


def test_a_refused_change_leaves_the_course_alone():
    store = CourseStore()
    before = store.change("a", lambda course: course.go("sink"))
    with pytest.raises(ConfigError):
        store.change("a", lambda course: course.lock({}))
    assert store.get("a") == before
