"""All lessons, in the order in which a student meets them."""

from __future__ import annotations

from kvviz.errors import ConfigError
from kvviz.lessons import (
    arithmetic,
    bits,
    budget,
    memory,
    offload,
    repair,
    saves,
    scales,
    sink,
    window,
)
from kvviz.lessons.lesson import Lesson, Task

LESSONS: tuple[Lesson, ...] = (
    saves.LESSON,
    arithmetic.LESSON,
    sink.LESSON,
    window.LESSON,
    repair.LESSON,
    memory.LESSON,
    bits.LESSON,
    scales.LESSON,
    offload.LESSON,
    budget.LESSON,
)


def lesson_keys() -> list[str]:
    """Their keys."""
    return [lesson.key for lesson in LESSONS]


def lesson(key: str) -> Lesson:
    """One lesson.

    Raises:
        ConfigError: no such lesson; the message lists those that exist.
    """
    for known in LESSONS:
        if known.key == key:
            return known
    raise ConfigError("lesson_unknown", name=key, known=", ".join(lesson_keys()))


def tasks() -> dict[str, Task]:
    """Every task of every lesson, by name."""
    return {task.name: task for lesson in LESSONS for task in lesson.tasks}
