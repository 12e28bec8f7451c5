"""Several generations in lockstep over one model: the same events as a run, tagged with their index."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from kvviz.config import RunConfig
from kvviz.engine.run import run
from kvviz.events import Event, PrefillProgress, RunFailed, RunFinished, TokenGenerated
from kvviz.models import LanguageModel

_TURN_ENDS = (PrefillProgress, TokenGenerated, RunFinished, RunFailed)


def compare(
    model: LanguageModel,
    configs: Sequence[RunConfig],
    *,
    stop: threading.Event | None = None,
    capture_attention: bool = True,
) -> Iterator[Event]:
    """Take turns: every configuration reads a chunk or chooses a token, then the next one does.

    A run that fails ends alone; the others go on. Closing the iterator frees every cache. Requests that
    differ in their cache alone have the same cells in their attention maps.

    Raises:
        KvvizError: before the first event, when any of the requests is refused.
    """
    sinks = max((config.cache.sink_size for config in configs), default=0)
    runs = [
        run(model, config, index=index, stop=stop, capture_attention=capture_attention, map_sinks=sinks)
        for index, config in enumerate(configs)
    ]
    return _take_turns(runs)


def _take_turns(runs: Sequence[Iterator[Event]]) -> Iterator[Event]:
    live = list(runs)
    with contextlib.ExitStack() as stack:
        for events in runs:
            stack.callback(events.close)  # type: ignore[attr-defined]
        while live:
            for events in tuple(live):
                for event in events:
                    yield event
                    if isinstance(event, _TURN_ENDS):
                        break
                else:
                    live.remove(events)
