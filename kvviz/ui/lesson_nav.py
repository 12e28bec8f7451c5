"""The head of a lesson: where it stands among the others, what it is about, and its link.

Knows lessons and courses; does not know what is asked.
"""

from __future__ import annotations

from typing import Any

from kvviz import lessons
from kvviz.catalogue import text
from kvviz.ui import lesson_links
from kvviz.ui.lesson_course import Course, Station
from kvviz.ui.lesson_evidence import stored_evidence


def nav_view(course: Course, *, moved: bool = False, refused: str = "") -> dict[str, Any]:
    """All lessons with how far each is, and what the current one is about. ``moved``: the page turned to
    it; ``refused``: why a link was not opened."""
    lesson, keys = lessons.lesson(course.current), lessons.lesson_keys()
    place = keys.index(course.current)
    score, done = course.total
    total = text("lessons.total", got=points(score.got), most=score.most, done=done, all=len(keys))
    return {
        "key": lesson.key,
        "title": text(f"lesson.{lesson.key}.title"),
        "story": lessons.story(lesson, stored_evidence(lesson)),
        "query": lesson_links.written(course),
        "moved": moved,
        "refused": refused,
        "instructor": course.instructor,
        "label": text("lessons.nav"),
        "items": [
            {
                "key": key,
                "number": i,
                "title": text(f"lesson.{key}.title"),
                "state": _state_words(course.station(key)),
                "done": course.station(key).score is not None,
                "current": key == course.current,
            }
            for i, key in enumerate(keys, 1)
        ],
        "previous": {"key": keys[place - 1] if place else "", "label": text("lessons.previous")},
        "next": {"key": keys[place + 1] if place + 1 < len(keys) else "", "label": text("lessons.next")},
        "words": {
            "copy": text("lessons.copy"),
            "copied": text("lessons.copied"),
            "copy_by_hand": text("lessons.copy_by_hand"),
            "address": text("lessons.address"),
        },
        "total": total if done else text("lessons.intro"),
    }


def _state_words(station: Station) -> str:
    if station.score is not None:
        return text("lessons.state.done", got=points(station.score.got), most=station.score.most)
    return text(f"lessons.state.{'locked' if station.is_locked else 'open'}")


def points(points: float) -> str:
    return f"{points:.1f}".removesuffix(".0")
