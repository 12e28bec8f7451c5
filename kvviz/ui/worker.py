"""One thread carries one run from start to end, whether or not anybody is watching.

Knows the engine's contract and the run it writes to; knows no page. However it ends, the run ends too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any, cast

from kvviz.catalogue import text
from kvviz.errors import KvvizError
from kvviz.figures.theme import run_letter
from kvviz.ui.context import AppContext
from kvviz.ui.language import in_thread
from kvviz.ui.runs import LiveRun

logger = logging.getLogger(__name__)

#: writes what an engine tells of a loaded model into a run
Drive = Callable[[Any, AppContext, Any], None]


def start(run: LiveRun, context: AppContext, drive: Drive | None = None) -> None:
    """Carry ``run`` in a thread of its own; ``drive`` does it in another way than the Run tab's."""
    in_thread(carry, run, context, drive or _drive, called=f"kvviz-{run.id[:8]}")


def carry(run: LiveRun, context: AppContext, drive: Drive) -> None:
    """Load the model, drive the engine into the run's records, and say plainly what went wrong."""
    try:
        if not run.stop.is_set():
            run.phase = "loading"
            model = context.loader.get(run.model)
            run.remarks = _remarks(run, context)
            drive(run, context, model)
    except KvvizError as error:
        run.error = str(error)
    except Exception:
        logger.exception("run %s failed", run.id)
        run.error = text("ui.error.unexpected")
    finally:
        run.finish()


def _remarks(run: LiveRun, context: AppContext) -> str:
    """What the weights say against either configuration, each sentence once. A refusal is the engine's."""
    told = [
        text("ui.run.remark", letter=run_letter(index), message=sentence)
        for index, config in enumerate(run.configs)
        for sentence in context.loader.remarks(run.model, config.cache)
    ]
    return " ".join(told)


def _drive(run: LiveRun, context: AppContext, model: Any) -> None:
    if run.stop.is_set():
        return
    run.phase = "running"
    with closing(cast(Any, context.compare(model, run.configs, stop=run.stop))) as events:
        for event in events:
            run.apply(event)
