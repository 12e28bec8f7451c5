"""The Lessons tab's links: the lesson and the lecturer's way come back; a wrong one is told."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.errors import ConfigError
from kvviz.lessons import LESSONS, lesson_keys
from kvviz.ui import lesson_links
from kvviz.ui.lesson_course import Course, opened
from kvviz.ui.lesson_handlers import N_VIEWS, SKIP, LessonHandlers

NAV, LINE = 0, 2
REQUEST: Any = SimpleNamespace(session_hash="me")


def arrived(handlers: LessonHandlers, query: str) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Navigation, line, and the tab that is opened."""
    *views, tab = handlers.arrive(REQUEST, query)
    assert len(views) == N_VIEWS
    return json.loads(views[NAV]), json.loads(views[LINE]), tab


@given(st.sampled_from(lesson_keys()), st.booleans(), st.booleans())
def test_what_is_shown_comes_back(lesson, instructor, held) -> None:
    course = Course(current=lesson, instructor=instructor, held=instructor and held)
    query = lesson_links.written(course)
    assert query.startswith(f"v=1&tab=lessons&lesson={lesson}")
    said = lesson_links.read(f"?{query}")
    assert said is not None
    assert opened(said, Course()) == course


def test_predictions_stay_at_home() -> None:
    course = Course(current="sink").lock({"weight": "40", "heads": "most", "repeated": "gone"})
    assert lesson_links.written(course) == lesson_links.written(Course(current="sink"))


@pytest.mark.parametrize(
    ("query", "lesson"),
    [
        ("?lesson=sink", "sink"),
        ("lesson=window&lang=zh&__theme=dark", "window"),
        ("?v=1&tab=lessons&lesson=bits&lang=zh&view=x&__sign=abc", "bits"),
        ("?lesson=nowhere", LESSONS[0].key),  # a plain query says what it can
        ("?v=1&tab=lessons", LESSONS[0].key),
    ],
)
def test_a_link_opens_its_lesson(make_context, query, lesson) -> None:
    nav, line, tab = arrived(LessonHandlers(make_context()), query)
    assert (nav["key"], nav["refused"], line["text"]) == (lesson, "", "")
    assert tab.selected == "lessons"
    assert nav["query"] == f"v=1&tab=lessons&lesson={lesson}"


def test_the_page_is_given_the_address_of_what_it_shows(make_context) -> None:
    handlers = LessonHandlers(make_context())
    nav, _, _ = arrived(handlers, "?v=1&tab=lessons&lesson=sink&instructor=1")
    assert nav["query"] == "v=1&tab=lessons&lesson=sink&instructor=1&answers=held"
    event: Any = SimpleNamespace(action="reveal")
    nav = json.loads(handlers.act(REQUEST, event)[NAV])
    assert nav["query"].endswith("&instructor=1&answers=revealed")
    event = SimpleNamespace(action="go", lesson="window")
    assert "lesson=window&instructor=1" in json.loads(handlers.act(REQUEST, event)[NAV])["query"]


@pytest.mark.parametrize(
    "query",
    ["", "?lang=zh", "?v=1&tab=run&n=5", "?v=1&tab=compare&n=5", "?v=1&n=5", "?v=7", "?lesson=a&lesson=b"],
)
def test_without_a_link_of_this_tab_nothing_is_opened(make_context, query) -> None:
    nav, line, tab = arrived(LessonHandlers(make_context()), query)
    assert (nav["key"], nav["refused"], line["text"]) == (LESSONS[0].key, "", "")
    assert tab == SKIP


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("v=2&tab=lessons&lesson=sink", "version"),
        ("v=1&tab=lessons&lesson=../../etc/passwd", "/etc/passwd"),
        ("v=1&tab=lessons&lesson=<img src=x onerror=alert(1)>", "<img"),
        ("v=1&tab=lessons&lesson=sink&instructor=yes", "yes"),
        ("v=1&tab=lessons&lesson=sink&answers=shown", "held, revealed"),
        ("v=1&tab=lessons&lesson=sink&lesson=window", "twice"),
        ("v=1&tab=lessons&n=5", "leave it out"),
        ("v=1&tab=lessons&lesson=%ff", "not readable"),
        ("v=1&tab=lessons&lesson=" + "x" * 8_000, "characters"),
    ],
)
def test_a_wrong_link_is_told_in_its_tab_and_changes_nothing(make_context, query, words) -> None:
    handlers = LessonHandlers(make_context())
    arrived(handlers, "?lesson=window")
    nav, _, tab = arrived(handlers, f"?{query}")
    assert words in nav["refused"]
    assert len(nav["refused"]) < 400
    assert (nav["key"], tab.selected) == ("window", "lessons")
    assert not nav["instructor"]
    event: Any = SimpleNamespace(action="go", lesson="sink")
    assert json.loads(handlers.act(REQUEST, event)[NAV])["refused"] == "", "told once"


@given(st.text(max_size=80))
def test_whatever_a_query_says_is_read_or_refused(words) -> None:
    for query in (words, f"?v=1&tab=lessons&lesson={words}", f"lesson={words}&instructor={words}"):
        try:
            said = lesson_links.read(query)
        except ConfigError:
            continue
        assert opened(said or {}, replace(Course(), current="sink")).current in lesson_keys()
