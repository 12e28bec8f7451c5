"""All experiments by name, and performing one: checked settings in, progress and a result out."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from kvviz.engine import Corpus, LanguageModel
from kvviz.errors import ConfigError, KvvizError
from kvviz.experiment import ExperimentInfo, LabProgress, LabResult
from kvviz.lab import (
    bits,
    caches,
    calibration,
    error,
    eviction,
    first_layer,
    key_or_value,
    meaning,
    middle,
    positions,
    quality,
    recall,
    requantize,
    saves,
    sink,
    speed,
    values,
)
from kvviz.lab.bench import Bench, Experiment

#: In the order in which a student meets them.
EXPERIMENTS: tuple[Experiment, ...] = (
    sink.EXPERIMENT,
    meaning.EXPERIMENT,
    eviction.EXPERIMENT,
    positions.EXPERIMENT,
    recall.EXPERIMENT,
    middle.EXPERIMENT,
    quality.EXPERIMENT,
    key_or_value.EXPERIMENT,
    first_layer.EXPERIMENT,
    bits.EXPERIMENT,
    values.EXPERIMENT,
    error.EXPERIMENT,
    requantize.EXPERIMENT,
    calibration.EXPERIMENT,
    saves.EXPERIMENT,
    caches.EXPERIMENT,
    speed.EXPERIMENT,
)


def experiments() -> list[ExperimentInfo]:
    """What can be asked."""
    return [experiment.info for experiment in EXPERIMENTS]


def experiment_names() -> list[str]:
    """Their names."""
    return [experiment.info.name for experiment in EXPERIMENTS]


def perform(
    model: LanguageModel,
    name: str,
    given: Mapping[str, Any],
    *,
    stop: threading.Event | None = None,
    corpus: Corpus | None = None,
) -> Iterator[LabProgress | LabResult]:
    """Do one experiment: progress after every piece of work, the result last.

    Raises:
        KvvizError: before anything runs, an unknown experiment or a refused setting; later, that ``stop``
            was set.
    """
    experiment = _find(name)
    settings = experiment.info.settings(given)
    bench = Bench(model, corpus)
    experiment.check(bench, settings)
    return _performed(experiment, bench, settings, stop or threading.Event())


def _find(name: str) -> Experiment:
    for experiment in EXPERIMENTS:
        if experiment.info.name == name:
            return experiment
    raise ConfigError("experiment_unknown", name=name, known=", ".join(experiment_names()))


def _performed(
    experiment: Experiment, bench: Bench, settings: dict[str, Any], stop: threading.Event
) -> Iterator[LabProgress | LabResult]:
    begin = time.perf_counter()
    done, total = 0, experiment.work(settings)
    yield LabProgress(0, total, None)
    with closing(experiment.run(bench, settings)) as work:
        while True:
            if stop.is_set():
                raise KvvizError("lab_stopped")
            try:
                done += next(work)
            except StopIteration as finished:
                result: LabResult = finished.value
                break
            elapsed_ms = 1000 * (time.perf_counter() - begin)
            left = max(0, total - done)
            yield LabProgress(min(done, total), total, elapsed_ms * left / done if done else None)
    yield replace(result, elapsed_ms=1000 * (time.perf_counter() - begin))
