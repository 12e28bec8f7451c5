"""A lesson's figures and the numbers behind them, as values of the page's live views.

Knows evidence and figures; does not know what is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvviz import lessons
from kvviz.catalogue import text
from kvviz.experiment import LabResult
from kvviz.figures.lab import lab_panels
from kvviz.lessons import Lesson
from kvviz.ui import lab_views
from kvviz.ui.lesson_course import Course
from kvviz.ui.lesson_evidence import evidence_of
from kvviz.ui.lesson_runs import LessonRun

MOST_FIGURES = 2
#: Figures for the last row of a lecture hall.
_LARGE_FONT, _LARGE_HEIGHT = 17, 1.15
#: Pixels that all figures of a lesson have beside its words: alone, and above a table that is open.
_ROOM_PX, _ROOM_ABOVE_PX = 520, 190


def plots(course: Course, live: LessonRun | None) -> list[dict[str, Any]]:
    """``MOST_FIGURES`` plot values; unused ones are empty."""
    lesson = lessons.lesson(course.current)
    evidence = evidence_of(lesson, course.station(), live)
    shown: list[dict[str, Any]] = []
    if evidence is not None:
        for task, panel in lesson.figures:
            figure = _figure(evidence.results[task], panel, is_stored=evidence.source == "stored")
            if figure is not None:
                shown.append(_large(figure) if course.instructor else figure)
        room = _ROOM_ABOVE_PX if lesson.computed(evidence) else _ROOM_PX
        shown = [*_beside(shown, room)]
    return [*shown, *[lab_views.EMPTY_PLOT] * (MOST_FIGURES - len(shown))]


def _beside(figures: Sequence[dict[str, Any]], room_px: int) -> Iterator[dict[str, Any]]:
    """The figures with the heights at which they share one screen with the lesson's words."""
    whole = sum(value["figure"]["layout"]["height"] for value in figures)
    for value in figures:
        height = value["figure"]["layout"]["height"]
        yield value | {"height_beside": round(min(height, height * room_px / whole))}


def _figure(result: LabResult, panel: str, *, is_stored: bool) -> dict[str, Any] | None:
    panels = lab_panels(result, is_stored=is_stored)
    drawn = next((made for made in panels if made.key == panel), None)
    if drawn is None:
        return None
    title = text(f"lab.{result.experiment}.panel.{panel}.title")
    return {"name": title, "heading": title, "figure": drawn.payload}


def _large(value: Mapping[str, Any]) -> dict[str, Any]:
    layout = value["figure"]["layout"]
    larger = layout | {
        "font": layout.get("font", {}) | {"size": _LARGE_FONT},
        "height": round(_LARGE_HEIGHT * layout["height"]),
    }
    if "legend" in layout:
        larger["legend"] = layout["legend"] | {"font": {"size": _LARGE_FONT - 1}}
    return {**value, "figure": value["figure"] | {"layout": larger}}


def tables(course: Course, live: LessonRun | None) -> dict[str, Any]:
    """The numbers behind the figures; what is computed from them comes first and open."""
    lesson = lessons.lesson(course.current)
    evidence = evidence_of(lesson, course.station(), live)
    if evidence is None:
        return {"tables": []}
    computed = [
        lab_views.table_value(lab_views.table_title(name), made) | {"open": True}
        for name, made in lesson.computed(evidence).items()
    ]
    measured = []
    for task, name in lesson.tables:
        result = evidence.results[task]
        title = _table_title(lesson, result, name)
        measured.append(lab_views.table_value(title, result.tables[name]) | {"open": False})
    return {"tables": [*computed, *measured]}


def _table_title(lesson: Lesson, result: LabResult, name: str) -> str:
    title = lab_views.table_title(name)
    alike = [table for _, table in lesson.tables].count(name) > 1
    return text("lessons.table_of", title=title, bits=result.settings.get("bits", "")) if alike else title
