"""One comparison: every configuration generates in lockstep, then all are scored on the same forced tokens.

The runs' events pass through as they come; the last thing told is the :class:`kvviz.comparison.Comparison`. A
stop leaves what was measured until then. Knows no page.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import torch

import kvviz
from kvviz.comparison import (
    Comparison,
    Entry,
    Generation,
    Machine,
    Score,
    ScoreProgress,
    TextScore,
)
from kvviz.comparison_request import PROMPT_TEXT, ComparisonRequest
from kvviz.engine.compare import compare
from kvviz.engine.corpus import Corpus, named_text, text_of
from kvviz.engine.score_many import scoring_together, text_ids
from kvviz.events import AttentionRows, Event
from kvviz.models import LanguageModel
from kvviz.record import RunRecord, first_divergence

_LIBRARIES = ("torch", "transformers", "gradio", "numpy")


def comparing(
    model: LanguageModel,
    request: ComparisonRequest,
    *,
    corpus: Corpus | None = None,
    stop: threading.Event | None = None,
    capture_attention: bool = True,
) -> Iterator[Event | ScoreProgress | Comparison]:
    """Generate, score, and tell. ``corpus`` is the text to score where it is none of the named ones.

    Raises:
        KvvizError: before the first event, when any part of the request is refused.
    """
    ids: list[int] = []
    if request.text is not None:
        corpus = corpus or _corpus(request)
        ids = text_ids(model, corpus, request.text.start, request.text.length)
    stop = stop or threading.Event()
    events = compare(model, request.runs, stop=stop, capture_attention=capture_attention)
    return _tell(model, request, corpus, ids, stop, events)


def _corpus(request: ComparisonRequest) -> Corpus:
    assert request.text is not None
    name = request.text.name
    return text_of(name, request.prompt) if name == PROMPT_TEXT else named_text(name)


def _tell(
    model: LanguageModel,
    request: ComparisonRequest,
    corpus: Corpus | None,
    ids: Sequence[int],
    stop: threading.Event,
    events: Iterator[Event],
) -> Iterator[Event | ScoreProgress | Comparison]:
    begin = time.perf_counter()
    created = datetime.now(UTC).isoformat(timespec="seconds")
    records = [RunRecord() for _ in request.configurations]
    with closing(cast(Any, events)):
        for event in events:
            if not isinstance(event, AttentionRows):  # maps are no part of a comparison
                records[event.run].apply(event)
            yield event
    text: TextScore | None = None
    scores: Sequence[Score | None] = [None] * len(records)
    if corpus is not None and request.text is not None and not stop.is_set():
        result = yield from _scored(model, request, corpus, ids, stop)
        if result is not None:
            text, scores = result
    yield Comparison(
        request=request.to_dict(),
        model=model.facts,
        machine=machine_of(model.facts.device),
        versions=versions(),
        created=created,
        prompt_tokens=len(records[0].prompt_ids),
        text=text,
        entries=tuple(
            Entry(label, cache.to_dict(), generation(record, records[0]), score)
            for (label, cache), record, score in zip(request.configurations, records, scores, strict=True)
        ),
        elapsed_ms=round(1000 * (time.perf_counter() - begin), 3),
    )


def _scored(
    model: LanguageModel,
    request: ComparisonRequest,
    corpus: Corpus,
    ids: Sequence[int],
    stop: threading.Event,
) -> Generator[ScoreProgress, None, tuple[TextScore, list[Score]] | None]:
    """Progress after every reading; the value is None when it was stopped."""
    assert request.text is not None
    caches = [cache for _, cache in request.configurations]
    reading = scoring_together(
        model, corpus, ids, caches, skip=request.text.skip, chunk_size=request.chunk_size
    )
    total, done = len(ids) * (1 + len(caches)), 0
    yield ScoreProgress(0, total)
    with closing(reading):
        while not stop.is_set():
            try:
                done += next(reading)
            except StopIteration as finished:
                result: tuple[TextScore, list[Score]] = finished.value
                return result
            yield ScoreProgress(done, total)
    return None


def generation(record: RunRecord, first: RunRecord) -> Generation:
    """What a comparison keeps of a run; ``first`` is the one that it may part from."""
    labels = record.labels[len(record.prompt_ids) :]
    return Generation(
        status=record.status,
        message=record.message,
        text=record.text,
        token_ids=tuple(record.generated_ids),
        labels=tuple((label.display, label.raw.hex()) for label in labels),
        ttft_ms=record.ttft_ms,
        tpot_ms=record.tpot_ms,
        step_ms=tuple(round(ms, 3) for ms in record.step_ms),
        memory=record.memory[-1] if record.memory else None,
        divergence=None if record is first else first_divergence(first, record),
    )


def machine_of(device: str) -> Machine:
    """This machine, with the accelerator that ``device`` names.

    Where this process does not use CUDA itself, it is not asked: that would claim the accelerator.
    """
    is_used = device.startswith("cuda") and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_bytes=_memory_bytes(),
        accelerator=torch.cuda.get_device_name(device) if is_used else "",
    )


def _processor() -> str:
    """The processor's name; Linux tells it in a file only."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def versions() -> dict[str, str]:
    """Of everything that can change a number."""
    libraries = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"kvviz": kvviz.__version__, "python": platform.python_version(), **libraries}
