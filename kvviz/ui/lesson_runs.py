"""A lesson's live run: its experiments one after another, with one progress for all.

Knows the laboratory's contract and lessons' tasks; knows no page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, cast

from kvviz.experiment import LabProgress, LabResult
from kvviz.lessons import Task
from kvviz.ui.context import Lab
from kvviz.ui.lab_runs import LabRun


class LessonRun(LabRun):
    """Carried like one experiment; ``results`` has the result of every task that is done."""

    def __init__(self, session: str, key: str, model: str, tasks: Sequence[Task]) -> None:
        super().__init__(session, key, model, {})
        self.tasks = tuple(tasks)
        self.results: dict[str, LabResult] = {}

    def perform(self, lab: Lab, model: Any) -> Iterator[LabProgress | LabResult]:
        """All tasks; yields progress, and in the end the last result."""
        result: LabResult | None = None
        for task in self.tasks:
            result = yield from self._one(lab, model, task)
            self.results[task.name] = result
        assert result is not None
        yield result

    def _one(self, lab: Lab, model: Any, task: Task) -> Any:
        performed = lab.perform(model, task.experiment, task.settings, stop=self.stop)
        with closing(cast(Any, performed)) as events:
            for event in events:
                if isinstance(event, LabResult):
                    return event
                yield event
        raise RuntimeError("an experiment ended without a result")

    @property
    def number(self) -> int:
        """The task under way, from 1."""
        return min(len(self.results) + 1, len(self.tasks))
