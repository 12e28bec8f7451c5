"""Reading a calibration text through a model in full precision, once, for caches that need one."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from kvviz.cache.calibrate import calibration_of
from kvviz.config import CacheConfig
from kvviz.engine.run import check_length
from kvviz.errors import KvvizError
from kvviz.models import LanguageModel
from kvviz.quant import Calibration


def calibrate(
    model: LanguageModel,
    ids: Sequence[int],
    cache: CacheConfig,
    *,
    chunk_size: int = 256,
    stop: threading.Event | None = None,
) -> Calibration:
    """Static scales and codebooks that ``cache`` needs, from the text ``ids``.

    Raises:
        KvvizError: the cache does not fit the model, the text is too short or longer than the context, or
            ``stop`` was set.
    """
    model.check(cache, calibrated=True)
    check_length(model, False, len(ids), 0)
    session = model.new_session(CacheConfig())
    try:
        for start in range(0, len(ids), chunk_size):
            if stop is not None and stop.is_set():
                raise KvvizError("score_stopped", tokens=start)
            model.forward(ids[start : start + chunk_size], session, last_only=True)
        return calibration_of(session, cache)
    finally:
        session.reset()
