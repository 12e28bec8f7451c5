"""Links of the Lessons tab: a lesson, and a lecturer's way of showing it.

Knows which lessons there are and where a course stands; runs nothing. Plain queries (``?lesson=sink``) are
read too: what they say wrong is left out, while a link that says its version is refused as a whole.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

from kvviz.lessons import lesson_keys
from kvviz.link_values import Choice, Flag
from kvviz.permalink import MOST_CHARACTERS, LinkForm
from kvviz.ui.lesson_course import Course
from kvviz.ui.links import LINKED_TABS

TAB = "lessons"


def lesson_link() -> LinkForm:
    """What a link of the Lessons tab may carry."""
    return LinkForm(
        TAB,
        {"lesson": Choice(lesson_keys()), "instructor": Flag(), "answers": Choice(("held", "revealed"))},
        LINKED_TABS,
    )


def written(course: Course) -> str:
    """The query of the current lesson as it is shown: predictions and runs are not in it."""
    said: dict[str, object] = {"lesson": course.current}
    if course.instructor:
        said |= {"instructor": True, "answers": "held" if course.held else "revealed"}
    return lesson_link().encode(said)


def read(query: str) -> dict[str, str] | None:
    """What a query asks of the lessons, as ``lesson_course.opened`` takes it; None when it asks nothing.

    Raises:
        ConfigError: a link that cannot be read as a whole.
    """
    said = lesson_link().decode(query)
    if said is not None:
        return {key: ("0", "1")[value] if key == "instructor" else value for key, value in said.items()}
    plain = dict(parse_qsl(query.removeprefix("?")[:MOST_CHARACTERS]))
    asks = "lesson" in plain or plain.get("instructor") in ("1", "true")
    return plain if asks and "v" not in plain else None
