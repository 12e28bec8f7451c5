"""Lessons in a terminal: listed with their tasks, or their runs made and stored.

Knows lessons and results; whoever calls performs the experiments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvviz.catalogue import text
from kvviz.cli.output import Terminal, table
from kvviz.errors import ConfigError
from kvviz.experiment import LabResult
from kvviz.lessons import LESSONS, Task, has_stored, save, tasks
from kvviz.units import format_bytes


def listing() -> list[dict[str, Any]]:
    """Lessons with their questions and tasks as plain JSON values."""
    return [
        {
            "lesson": lesson.key,
            "title": text(f"lesson.{lesson.key}.title"),
            "questions": [question.key for question in lesson.questions],
            "tasks": [
                {"name": task.name, "experiment": task.experiment, "settings": dict(task.settings),
                 "stored": has_stored(task)}
                for task in lesson.tasks
            ],
        }
        for lesson in LESSONS
    ]  # fmt: skip


def listing_words() -> str:
    """The same for people."""
    rows = [
        (f"{lesson.key} / {task.name}", text(f"cli.lessons.{'stored' if has_stored(task) else 'missing'}"))
        for lesson in LESSONS
        for task in lesson.tasks
    ]
    return table(rows)


def wanted(names: Sequence[str]) -> list[Task]:
    """Tasks by name; all when none is named.

    Raises:
        ConfigError: there is no such task.
    """
    known = tasks()
    for name in names:
        if name not in known:
            raise ConfigError("lesson_task", name=name, known=", ".join(known))
    return [known[name] for name in names or known]


def record(
    chosen: Sequence[Task], perform: Callable[[Task], LabResult], terminal: Terminal
) -> list[dict[str, Any]]:
    """Perform and store each; tells each file with its size."""
    written = []
    for task in chosen:
        path = save(perform(task), task.name)
        size = path.stat().st_size
        terminal.tell(text("cli.lessons.written", path=path.name, bytes=format_bytes(size)))
        written.append({"task": task.name, "path": str(path), "bytes": size})
    return written
