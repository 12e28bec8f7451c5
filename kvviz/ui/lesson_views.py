"""A lesson's four steps as the values of its views: predict, run, observe, explain, and what may be pressed.

Knows courses, lessons and evidence; does not know gradio, nor when a view is sent.
"""

from __future__ import annotations

from typing import Any

from kvviz import lessons
from kvviz.catalogue import text
from kvviz.lessons import Evidence
from kvviz.ui import lab_views
from kvviz.ui.lesson_course import Course, Station
from kvviz.ui.lesson_evidence import evidence_of, source_words, stored_evidence
from kvviz.ui.lesson_nav import points
from kvviz.ui.lesson_questions import question_view
from kvviz.ui.lesson_runs import LessonRun
from kvviz.ui.views import notice


def lesson_view(course: Course, live: LessonRun | None, *, is_running: bool = False) -> dict[str, Any]:
    """What is asked, what may be pressed, and how the predictions stand."""
    lesson, station = lessons.lesson(course.current), course.station()
    stored = stored_evidence(lesson)
    evidence = evidence_of(lesson, station, live)
    return {
        "key": lesson.key,
        "steps": _steps(course, evidence),
        "open": _open_step(station, evidence, is_running=is_running),
        "steps_label": text("lessons.steps"),
        "running": is_running,
        "questions": [
            question_view(course, lesson, question, evidence, stored) for question in lesson.questions
        ],
        "locked": station.is_locked,
        "note": _note(course, station, evidence),
        "buttons": _buttons(course, station, is_running=is_running),
        "source": "" if evidence is None else source_words(evidence),
        "kind": "" if evidence is None else evidence.source,
    }


def _steps(course: Course, evidence: Evidence | None) -> list[dict[str, Any]]:
    """All four, whether they may be opened, and how a done one went in a word."""
    station, is_seen = course.station(), evidence is not None
    score = station.score
    stands = {
        "predict": (True, station.is_locked, text("lessons.done.predict")),
        "run": (
            course.may_run or is_seen,
            is_seen,
            text(f"lessons.done.{evidence.source}") if evidence is not None else "",
        ),
        "observe": (is_seen, score is not None and not course.held, _score_words(station)),
        "explain": (is_seen and not course.held, False, ""),
    }
    return [
        {
            "key": name,
            "label": text(f"lessons.step.{name}"),
            "enabled": enabled,
            "done": done,
            "note": note if done else "",
        }
        for name, (enabled, done, note) in stands.items()
    ]


def _score_words(station: Station) -> str:
    if station.score is None:
        return ""
    return text("lessons.state.done", got=points(station.score.got), most=station.score.most)


def _open_step(station: Station, evidence: Evidence | None, *, is_running: bool) -> str:
    """The step that is next to be done."""
    if is_running or (station.is_locked and evidence is None):
        return "run"
    return "predict" if evidence is None else "observe"


def _note(course: Course, station: Station, evidence: Evidence | None) -> str:
    if evidence is not None:
        if course.held:
            return text("lessons.held")
        return text("lessons.gone") if station.shown == "live" and evidence.source == "stored" else ""
    if station.is_locked:
        return text("lessons.locked")
    return "" if course.instructor else text("lessons.before")


def _buttons(course: Course, station: Station, *, is_running: bool) -> dict[str, Any]:
    may = course.may_run and not is_running
    made = {
        "lock": {
            "label": text("lessons.lock"),
            "enabled": not station.is_locked,
            "shown": not station.is_locked,
        },
        "stored": {"label": text("lessons.show_stored"), "enabled": may, "shown": True},
        "live": {"label": text("lessons.run_live"), "enabled": may, "shown": True},
        "stop": {"label": text("lessons.stop"), "enabled": is_running, "shown": is_running},
    }
    if course.instructor:
        name = "reveal" if course.held else "hold"
        made["reveal"] = {"label": text(f"lessons.instructor.{name}"), "enabled": True, "shown": True}
    return made


def tell_view(course: Course, live: LessonRun | None) -> dict[str, Any]:
    """What to look for, and why it is so."""
    lesson = lessons.lesson(course.current)
    evidence = evidence_of(lesson, course.station(), live)
    if evidence is None:
        return {"look_for": "", "paragraphs": [], "keys": _keys(course)}
    return {
        "look_for": lessons.look_for(lesson, evidence),
        "paragraphs": [] if course.held else lessons.explanation(lesson, evidence),
        "keys": _keys(course),
    }


def _keys(course: Course) -> str:
    return text("lessons.instructor.keys") if course.instructor else ""


def progress(run: LessonRun, loading: dict[str, Any], *, is_loaded: bool) -> dict[str, Any]:
    """The line while a live run is under way, and what is left to say after it."""
    line = lab_views.progress_notice(run, loading, is_loaded=is_loaded)
    if run.is_done:
        return line if run.error else notice()
    if len(run.tasks) == 1 or run.progress is None:
        return line
    words = text("lessons.progress", n=run.number, all=len(run.tasks), words=line["text"])
    return line | {"text": words}
