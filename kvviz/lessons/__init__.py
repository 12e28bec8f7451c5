"""ROOM what should a student find out? Lessons: predictions, the runs that decide them, what is said then.

Plain values and results of the laboratory; no model, no drawing and no page. Every verdict is computed from
the numbers of the run that the student looks at; no answer stands in a text.
"""

from __future__ import annotations

from kvviz.lessons.lesson import (
    Choice,
    Estimate,
    Evidence,
    Lesson,
    Pick,
    Question,
    Score,
    Task,
    Truth,
    Verdict,
    check,
    read_answer,
)
from kvviz.lessons.registry import LESSONS, lesson, lesson_keys, tasks
from kvviz.lessons.stored import has_stored, load, save, stored_path
from kvviz.lessons.words import answer_words, explanation, feedback, look_for, option_label, prompt, story

__all__ = [
    "LESSONS",
    "Choice",
    "Estimate",
    "Evidence",
    "Lesson",
    "Pick",
    "Question",
    "Score",
    "Task",
    "Truth",
    "Verdict",
    "answer_words",
    "check",
    "explanation",
    "feedback",
    "has_stored",
    "lesson",
    "lesson_keys",
    "load",
    "look_for",
    "option_label",
    "prompt",
    "read_answer",
    "save",
    "stored_path",
    "story",
    "tasks",
]
