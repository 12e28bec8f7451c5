"""A comparison that a page runs: its runs' records, how far its scoring is, what came out.

Knows the engine's contract; does not know gradio or a figure.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, cast

from kvviz.comparison import Comparison, ScoreProgress
from kvviz.comparison_request import ComparisonRequest
from kvviz.ui.context import AppContext
from kvviz.ui.runs import LiveRun


class ComparisonRun(LiveRun):
    """One press of Compare. ``result`` is there when the engine has told it, stopped or not."""

    def __init__(self, session: str, model: str, request: ComparisonRequest) -> None:
        super().__init__(session, model, request.runs)
        self.request = request
        self.progress: ScoreProgress | None = None
        self.result: Comparison | None = None


def drive(run: ComparisonRun, context: AppContext, model: Any) -> None:
    """Let the engine compare, and take down what it tells."""
    if run.stop.is_set():
        return
    run.phase = "running"
    with closing(cast(Any, context.comparing(model, run.request, stop=run.stop))) as told:
        for event in told:
            if isinstance(event, Comparison):
                run.result = event
            elif isinstance(event, ScoreProgress):
                run.progress = event
            else:
                run.apply(event)
