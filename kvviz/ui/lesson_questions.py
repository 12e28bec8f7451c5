"""A lesson's questions as values of its view: what is asked, and how a prediction stands.

Knows lessons, courses and verdicts; does not know what may be pressed.
"""

from __future__ import annotations

from typing import Any

from kvviz import lessons
from kvviz.catalogue import text
from kvviz.lessons import Choice, Estimate, Evidence, Lesson, Pick, Question
from kvviz.ui.lesson_course import Course


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
        "said": "",
    }
    if answer is not None:
        value["said"] = text(
            "lessons.you_said", answer=lessons.answer_words(lesson, question, answer, stored)
        )
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
        value["verdict"] = _verdict_view(lesson, question, answer, evidence, stored) | {"said": value["said"]}
    return value


def _verdict_view(
    lesson: Lesson, question: Question, answer: Any, evidence: Evidence, stored: Evidence
) -> dict[str, Any]:
    """How a prediction stands and what was measured; without a prediction, what was measured."""
    if answer is None:
        answer_told = _best(question, evidence)
        verdict = lessons.check(question, answer_told, evidence) if answer_told != "" else None
        kind, title = "told", text("lessons.verdict.told")
    else:
        verdict = lessons.check(question, answer, evidence)
        kind, title = verdict.kind, text(f"lessons.verdict.{verdict.kind}")
        if isinstance(question, Pick):
            title = text("lessons.verdict.score", score=f"{100 * verdict.score:.0f}")
    if verdict is None:
        return {"kind": kind, "title": title, "measured": "", "words": ""}
    measured = lessons.answer_words(lesson, question, verdict.truth.best, stored)
    return {
        "kind": kind,
        "title": title,
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
