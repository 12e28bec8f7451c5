"""What a lesson's station shows, and how its locked predictions stand to it.

Knows lessons, courses and results; knows no view.
"""

from __future__ import annotations

from kvviz import lessons
from kvviz.catalogue import language, text
from kvviz.lessons import Evidence, Lesson, Verdict
from kvviz.ui.lesson_course import Station
from kvviz.ui.lesson_runs import LessonRun
from kvviz.units import format_ms


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


def source_words(evidence: Evidence) -> str:
    """Where the numbers come from: stored or live, which model, which weights."""
    results = list(evidence.results.values())
    facts = results[0].model
    return text(
        f"lessons.from_{evidence.source}",
        model=facts.name, device=facts.device.split(":")[0].upper(), dtype=facts.dtype,
        hash=facts.weights_hash[:8], time=format_ms(sum(result.elapsed_ms for result in results)),
    )  # fmt: skip
