"""A lesson as the values of its live views: what is asked, what may be pressed, what the run says.

Knows courses, lessons, results and figures; does not know gradio, nor when a view is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvviz import lessons
from kvviz.catalogue import language, text
from kvviz.experiment import LabResult
from kvviz.figures.lab import lab_panels
from kvviz.lessons import Choice, Estimate, Evidence, Lesson, Pick, Question, Verdict
from kvviz.ui import lab_views, lesson_links
from kvviz.ui.lesson_course import Course, Station
from kvviz.ui.lesson_runs import LessonRun
from kvviz.ui.views import notice
from kvviz.units import format_ms

MOST_FIGURES = 2
#: Figures for the last row of a lecture hall.
_LARGE_FONT, _LARGE_HEIGHT = 17, 1.15


def stored_evidence(lesson: Lesson) -> Evidence:
    """The stored runs of a lesson's tasks, in the words of the language that is spoken.

    Raises:
        KvvizError: one of them cannot be read.
    """
    return Evidence({task.name: lessons.load(task.name, language()) for task in lesson.tasks})


def evidence_of(lesson: Lesson, station: Station, live: LessonRun | None) -> Evidence | None:
    """What the station shows; None when nothing is shown. A live run that is gone gives way to the stored."""
    if not station.shown:
        return None
    if station.shown == "live" and live is not None and len(live.results) == len(lesson.tasks):
        return Evidence(live.results, "live")
    return stored_evidence(lesson)


def judged(lesson: Lesson, station: Station, evidence: Evidence) -> dict[str, Verdict]:
    """The verdict on every locked prediction."""
    return {
        question.key: lessons.check(question, station.answers[question.key], evidence)
        for question in lesson.questions
        if question.key in station.answers
    }


def lesson_view(course: Course, live: LessonRun | None, *, is_running: bool = False) -> dict[str, Any]:
    """What is asked, what may be pressed, and how the predictions stand."""
    lesson, station = lessons.lesson(course.current), course.station()
    stored = stored_evidence(lesson)
    evidence = evidence_of(lesson, station, live)
    return {
        "key": lesson.key,
        "steps": {name: text(f"lessons.step.{name}") for name in ("predict", "run")},
        "questions": [
            question_view(course, lesson, question, evidence, stored) for question in lesson.questions
        ],
        "locked": station.is_locked,
        "note": _note(course, station, evidence),
        "buttons": _buttons(course, station, is_running=is_running),
        "source": "" if evidence is None else source_words(evidence),
        "kind": "" if evidence is None else evidence.source,
    }


def nav_view(course: Course, *, moved: bool = False, refused: str = "") -> dict[str, Any]:
    """All lessons with how far each is, and what the current one is about. ``moved``: the page turned to
    it; ``refused``: why a link was not opened."""
    lesson, keys = lessons.lesson(course.current), lessons.lesson_keys()
    place = keys.index(course.current)
    score, done = course.total
    total = text("lessons.total", got=_points(score.got), most=score.most, done=done, all=len(keys))
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
        return text("lessons.state.done", got=_points(station.score.got), most=station.score.most)
    return text(f"lessons.state.{'locked' if station.is_locked else 'open'}")


def _points(points: float) -> str:
    return f"{points:.1f}".removesuffix(".0")


def question_view(
    course: Course, lesson: Lesson, question: Question, evidence: Evidence | None, stored: Evidence
) -> dict[str, Any]:
    """One question; with evidence also what it says, unless the answers are held back."""
    station = course.station()
    answer = station.answers.get(question.key)
    value: dict[str, Any] = {
        "key": question.key,
        "ask": lessons.prompt(lesson, question, stored),
        "locked": station.is_locked,
        "answer": answer,
        "verdict": None,
    }
    match question:
        case Estimate():
            value |= {"unit": text(f"lessons.unit.{question.unit}"), "label": text("lessons.number_label")}
            if answer is not None and question.unit == "share":
                value["answer"] = round(100 * float(answer), 6)
        case Choice() | Pick():
            value["options"] = [
                {"value": option, "label": lessons.option_label(lesson, question, option, stored)}
                for option in question.options
            ]
    if evidence is not None and not course.held:
        value["verdict"] = verdict_view(lesson, question, answer, evidence, stored)
    return value


def verdict_view(
    lesson: Lesson, question: Question, answer: Any, evidence: Evidence, stored: Evidence
) -> dict[str, Any]:
    """How a prediction stands and what was measured; without a prediction, what was measured."""
    if answer is None:
        answer_told = _best(question, evidence)
        verdict = lessons.check(question, answer_told, evidence) if answer_told != "" else None
        said, kind, title = "", "told", text("lessons.verdict.told")
    else:
        verdict = lessons.check(question, answer, evidence)
        said = text("lessons.you_said", answer=lessons.answer_words(lesson, question, answer, stored))
        kind, title = verdict.kind, text(f"lessons.verdict.{verdict.kind}")
        if isinstance(question, Pick):
            title = text("lessons.verdict.score", score=f"{100 * verdict.score:.0f}")
    if verdict is None:
        return {"kind": kind, "title": title, "said": said, "measured": "", "words": ""}
    measured = lessons.answer_words(lesson, question, verdict.truth.best, stored)
    return {
        "kind": kind,
        "title": title,
        "said": said,
        "measured": text("lessons.measured", answer=measured),
        "words": lessons.feedback(lesson, question, verdict, evidence),
    }


def _best(question: Question, evidence: Evidence) -> Any:
    match question:
        case Choice():
            return question.truth(evidence).best
        case Estimate():
            return question.truth(evidence)
        case Pick():
            scores = {k: v for k, v in question.scores(evidence).items() if v is not None}
            return max(scores, key=lambda option: scores[option], default="")


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


def source_words(evidence: Evidence) -> str:
    """Where the numbers come from: stored or live, which model, which weights."""
    results = list(evidence.results.values())
    facts = results[0].model
    return text(
        f"lessons.from_{evidence.source}",
        model=facts.name, device=facts.device.split(":")[0].upper(), dtype=facts.dtype,
        hash=facts.weights_hash[:8], time=format_ms(sum(result.elapsed_ms for result in results)),
    )  # fmt: skip


def tell_view(course: Course, live: LessonRun | None) -> dict[str, Any]:
    """What to look for, and why it is so."""
    lesson = lessons.lesson(course.current)
    evidence = evidence_of(lesson, course.station(), live)
    if evidence is None:
        return {"observe": "", "look_for": "", "explain": "", "paragraphs": [], "keys": _keys(course)}
    return {
        "observe": text("lessons.step.observe"),
        "look_for": text(f"lesson.{lesson.key}.look_for"),
        "explain": "" if course.held else text("lessons.step.explain"),
        "paragraphs": [] if course.held else lessons.explanation(lesson, evidence),
        "keys": _keys(course),
    }


def _keys(course: Course) -> str:
    return text("lessons.instructor.keys") if course.instructor else ""


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
    return [*shown, *[lab_views.EMPTY_PLOT] * (MOST_FIGURES - len(shown))]


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


def progress(run: LessonRun, loading: dict[str, Any], *, is_loaded: bool) -> dict[str, Any]:
    """The line while a live run is under way, and what is left to say after it."""
    line = lab_views.progress_notice(run, loading, is_loaded=is_loaded)
    if run.is_done:
        return line if run.error else notice()
    if len(run.tasks) == 1 or run.progress is None:
        return line
    words = text("lessons.progress", n=run.number, all=len(run.tasks), words=line["text"])
    return line | {"text": words}
