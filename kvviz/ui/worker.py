"""One thread carries one run from start to end, whether or not anybody is watching.

Knows the engine's contract and the run it writes to; knows no page. However it ends, the run ends too.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import Any, cast

from kvviz.catalogue import text
from kvviz.errors import KvvizError
from kvviz.ui.context import AppContext
from kvviz.ui.language import in_thread
from kvviz.ui.runs import LiveRun

logger = logging.getLogger(__name__)


def start(run: LiveRun, context: AppContext) -> None:
    """Carry ``run`` in a thread of its own."""
    in_thread(carry, run, context, called=f"kvviz-{run.id[:8]}")


def carry(run: LiveRun, context: AppContext) -> None:
    """Load the model, drive the engine into the run's records, and say plainly what went wrong."""
    try:
        if not run.stop.is_set():
            run.phase = "loading"
            model = context.loader.get(run.model)
            run.remarks = _remarks(run, context)
            _drive(run, context, model)
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
        text("ui.run.remark", letter=letter, message=sentence)
        for letter, config in zip("AB", run.configs, strict=False)
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
