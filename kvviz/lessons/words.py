"""What a lesson says: its questions, the verdicts with the measured numbers, the explanation.

Sentences come from the catalogue in the language that is spoken, numbers from the evidence. Each function is
called when its words are shown.
"""

from __future__ import annotations

from kvviz.catalogue import text
from kvviz.lessons.lesson import Answer, Choice, Estimate, Evidence, Lesson, Pick, Question, Unit, Verdict
from kvviz.units import format_bits, format_bytes, format_count, format_share


def prompt(lesson: Lesson, question: Question, stored: Evidence) -> str:
    """The question, with what it says of the stored run."""
    return text(f"lesson.{lesson.key}.q.{question.key}.ask", **lesson.given(stored))


def option_label(lesson: Lesson, question: Question, option: str, stored: Evidence) -> str:
    """How one option is called."""
    return text(f"lesson.{lesson.key}.q.{question.key}.option.{option}", **lesson.given(stored))


def answer_words(lesson: Lesson, question: Question, answer: Answer, stored: Evidence) -> str:
    """An answer as people read it."""
    if isinstance(question, Estimate):
        return number_words(float(answer), question.unit)
    return option_label(lesson, question, str(answer), stored) if answer else "–"


def story(lesson: Lesson, stored: Evidence) -> str:
    """What it is about, with what it says of the stored run."""
    return text(f"lesson.{lesson.key}.story", **lesson.given(stored))


def look_for(lesson: Lesson, evidence: Evidence) -> str:
    """What to see in the figures."""
    return text(f"lesson.{lesson.key}.look_for", **lesson.facts(evidence))


def number_words(value: float, unit: Unit) -> str:
    """A number of an estimate."""
    match unit:
        case "count":
            return format_count(round(value))
        case "share":
            return format_share(value)
        case "bytes":
            return text("lessons.bytes", n=format_count(round(value)), short=format_bytes(value))
        case "gib":
            return f"{value:,.2f} GiB"
        case "bits":
            return format_bits(value)


def feedback(lesson: Lesson, question: Question, verdict: Verdict, evidence: Evidence) -> str:
    """What the run says to the question, with its numbers."""
    key = f"lesson.{lesson.key}.q.{question.key}.found"
    facts = lesson.facts(evidence)
    match question:
        case Choice():
            return text(f"{key}.{verdict.truth.best}", **facts)
        case Estimate():
            return text(key, truth=number_words(float(verdict.truth.best), question.unit), **facts)
        case Pick():
            return _pick_words(lesson, question, verdict, evidence)


def _pick_words(lesson: Lesson, question: Pick, verdict: Verdict, evidence: Evidence) -> str:
    key = f"lesson.{lesson.key}.q.{question.key}"
    best = str(verdict.truth.best)
    if not best:
        return text(f"{key}.none", **lesson.facts(evidence))
    fits = question.scores(evidence)[str(verdict.answer)] is not None
    outcome = "refused" if not fits else "best" if verdict.kind == "right" else "found"
    told = {f"best_{name}": value for name, value in question.facts(evidence, best).items()}
    mine = question.facts(evidence, str(verdict.answer))
    score = f"{100 * verdict.score:.0f}"
    return text(f"{key}.{outcome}", score=score, **mine, **told, **lesson.facts(evidence))


def explanation(lesson: Lesson, evidence: Evidence) -> list[str]:
    """Paragraphs that say why."""
    said = text(f"lesson.{lesson.key}.explain", **lesson.facts(evidence))
    return [paragraph for paragraph in said.split("\n") if paragraph.strip()]
