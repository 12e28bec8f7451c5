"""What does it cost to wait? Decode steps and prefills timed in one process, ours beside the library's.

Every round gives one step to each contestant in turn, so that a machine that slows down slows them all; the
text and the forced tokens are the same. Everyone reads the prompt in the same chunks, the library's caches
also at once, as they do when nobody cuts it for them. Ratios are between medians. Arrays (``C`` contestants,
in the table's order, for each context ``T``): ``decode_ms_T`` ``(C, rounds)``. Marks: ``labels_T``,
``missing`` (caches whose package is not installed), ``copy_gb_s`` (what copying a large tensor reaches
here), ``threads``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from kvviz.catalogue import text
from kvviz.engine import LanguageModel
from kvviz.engine.run import check_length
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, Table, table
from kvviz.lab.bench import Bench, Experiment, Experimenting, Tokens
from kvviz.lab.contestants import CHUNK_TOKENS, FULL, LIBRARY, NAMES, Contestant, Reading, contestants
from kvviz.units import format_ms, format_number

CONTEXTS = ("1024", "4096", "8192")
#: the library's quantized caches optimise every group: minutes beyond this
PEER_CONTEXT = 4096
WARM_STEPS = 4
_COPY_BYTES, _COPIES = 256 << 20, 5

INFO = ExperimentInfo(
    "speed",
    (
        Control("contexts", "choices", list(CONTEXTS), options=CONTEXTS),
        Control("caches", "choices", list(NAMES), options=NAMES),
        Control("rounds", "int", 21, low=3, high=1000),
        Control("prefills", "int", 1, low=1, high=20),
    ),
    group="speed",
    held_tokens=lambda settings: max(int(context) for context in settings["contexts"]),
)


@dataclass(slots=True)
class _Timed:
    """One contestant at one context."""

    contestant: Contestant
    prefill_ms: list[float] = field(default_factory=list)
    at_once_ms: list[float] = field(default_factory=list)
    decode_ms: list[float] = field(default_factory=list)
    held_bytes: int = 0
    transient_bytes: int = 0


def _entered(settings: dict[str, Any], context: int) -> list[Contestant]:
    chosen, _ = contestants(settings["caches"])
    return [one for one in chosen if not one.is_peer or context == PEER_CONTEXT]


def _steps(settings: dict[str, Any]) -> int:
    return WARM_STEPS + int(settings["rounds"]) + 1  # and one whose memory is watched


def _work(settings: dict[str, Any]) -> int:
    total = 0
    for context in map(int, settings["contexts"]):
        prompt = context - _steps(settings)
        entered = _entered(settings, context)
        prefills = len(entered) + sum(one.reads_at_once for one in entered)
        total += settings["prefills"] * prompt * prefills + _steps(settings) * len(entered)
    return total


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    longest = max(map(int, settings["contexts"]))
    check_length(bench.model, False, longest, 0)
    bench.text(0, longest)


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    _, missing = contestants(settings["caches"])
    model, rows = bench.model, []
    arrays: dict[str, Any] = {}
    marks: dict[str, Any] = {
        "missing": missing,
        "copy_gb_s": copy_gb_per_second(model.device),
        "threads": torch.get_num_threads(),
    }
    found: dict[int, list[_Timed]] = {}
    for context in map(int, settings["contexts"]):
        entered = _entered(settings, context)
        timed = yield from _at(model, bench.text(0, context), entered, settings)
        found[context] = timed
        rows += _rows(context, timed)
        arrays[f"decode_ms_{context}"] = np.array([one.decode_ms for one in timed])
        marks[f"labels_{context}"] = [one.contestant.label for one in timed]
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=model.facts,
        text_sha256=bench.corpus.sha256,
        finding=_finding(found, marks),
        tables={"speed": _table(rows)},
        arrays=arrays,
        marks=marks,
    )


def _at(
    model: LanguageModel, ids: list[int], entered: list[Contestant], settings: dict[str, Any]
) -> Generator[Tokens, None, list[_Timed]]:
    """Everyone at one context: prefills one after the other, then rounds of one step each."""
    prompt, forced = ids[: -_steps(settings)], ids[-_steps(settings) :]
    watch = Watch(model.device)
    timed = [_Timed(one) for one in entered]
    readings: list[Reading] = []
    try:
        for time_again in range(settings["prefills"]):
            for one in timed:
                reading = one.contestant.reading(model)
                one.prefill_ms.append(watch.ms(partial(_in_chunks, reading, prompt)))
                if time_again + 1 < settings["prefills"]:
                    reading.close()
                else:
                    readings.append(reading)
                yield len(prompt)
                if one.contestant.reads_at_once:
                    reading = one.contestant.reading(model)
                    one.at_once_ms.append(watch.ms(partial(reading.feed, prompt)))
                    reading.close()
                    yield len(prompt)
        for step, token in enumerate(forced):
            is_last = step + 1 == len(forced)
            for one, reading in _turned(list(zip(timed, readings, strict=True)), step):
                act = lambda r=reading, t=token: r.feed([t])  # noqa: E731
                if is_last:
                    one.transient_bytes = watch.transient_bytes(act)
                    one.held_bytes = reading.held_bytes()
                else:
                    taken = watch.ms(act)
                    if step >= WARM_STEPS:
                        one.decode_ms.append(taken)
                yield 1
    finally:
        for reading in readings:
            reading.close()
    return timed


def _in_chunks(reading: Reading, ids: list[int]) -> None:
    """In the chunks that everyone reads."""
    for start in range(0, len(ids), CHUNK_TOKENS):
        reading.feed(ids[start : start + CHUNK_TOKENS])


def _turned(pairs: list[tuple[_Timed, Reading]], by: int) -> list[tuple[_Timed, Reading]]:
    """Another one begins each round."""
    by %= len(pairs)
    return pairs[by:] + pairs[:by]


class Watch:
    """Times and memory of an act on one device."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"

    def ms(self, act: Callable[[], object]) -> float:
        """Wall time until the device has done it all."""
        self._settle()
        begin = time.perf_counter()
        act()
        self._settle()
        return 1000 * (time.perf_counter() - begin)

    def transient_bytes(self, act: Callable[[], object]) -> int:
        """The most that was allocated at once during ``act`` above what was held before it."""
        if self._is_cuda:
            self._settle()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            act()
            self._settle()
            return torch.cuda.max_memory_allocated() - before
        activity = torch.profiler.ProfilerActivity.CPU
        with torch.profiler.profile(activities=[activity], profile_memory=True) as profile:
            act()
        level = peak = 0
        events = profile.profiler.kineto_results.events()
        for event in sorted(events, key=lambda event: event.start_ns()):
            if event.name() == "[memory]":
                level += event.nbytes()
                peak = max(peak, level)
        return peak

    def _settle(self) -> None:
        if self._is_cuda:
            torch.cuda.synchronize()


def copy_gb_per_second(device: torch.device) -> float:
    """What copying a large tensor on ``device`` reaches: bytes read and written, 1e9 a second, the median."""
    source = torch.zeros(_COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    watch = Watch(device)
    taken = [watch.ms(lambda: target.copy_(source)) for _ in range(_COPIES)]
    return 2 * _COPY_BYTES / statistics.median(taken) / 1e6


def _rows(context: int, timed: list[_Timed]) -> list[list[Cell]]:
    decode = {one.contestant.name: statistics.median(one.decode_ms) for one in timed}
    prefill = {one.contestant.name: statistics.median(one.prefill_ms) for one in timed}
    at_once = {one.contestant.name: statistics.median(one.at_once_ms) for one in timed if one.at_once_ms}
    rows: list[list[Cell]] = []
    for one in timed:
        name = one.contestant.name
        low, _, high = statistics.quantiles(one.decode_ms, n=4)
        rows.append(
            [
                context, one.contestant.label, decode[name], low, high,
                _ratio(decode, name, LIBRARY), _ratio(decode, name, FULL),
                prefill[name], _ratio(prefill, name, LIBRARY), at_once.get(name),
                prefill[name] / at_once[LIBRARY] if LIBRARY in at_once else None,
                one.held_bytes, one.transient_bytes,
            ]
        )  # fmt: skip
    return rows


def _ratio(medians: dict[str, float], name: str, base: str) -> float | None:
    return medians[name] / medians[base] if base in medians else None


def _table(rows: list[list[Cell]]) -> Table:
    return table(
        [
            ("context", "count"), ("speed_cache", "text"), ("decode_ms", "ms"), ("decode_low_ms", "ms"),
            ("decode_high_ms", "ms"), ("decode_to_library", "norm"), ("decode_to_full", "norm"),
            ("prefill_ms", "ms"), ("prefill_to_library", "norm"), ("at_once_ms", "ms"),
            ("prefill_to_at_once", "norm"),
            ("held_bytes", "bytes"), ("transient_bytes", "bytes"),
        ],
        rows,
    )  # fmt: skip


def _finding(found: dict[int, list[_Timed]], marks: dict[str, Any]) -> str:
    sentences = []
    for context, timed in found.items():
        decode = {one.contestant.name: statistics.median(one.decode_ms) for one in timed}
        base = LIBRARY if LIBRARY in decode else next(iter(decode))
        said = "; ".join(
            text(
                "lab.speed.finding.one",
                name=one.contestant.label,
                ratio=format_number(decode[one.contestant.name] / decode[base]),
            )
            for one in timed
            if one.contestant.name != base
        )
        label = next(one.contestant.label for one in timed if one.contestant.name == base)
        words = {"context": context, "base": label, "ms": format_ms(decode[base]), "said": said or "–"}
        sentences.append(text("lab.speed.finding.context", **words))
    sentences.append(
        text(
            "lab.speed.finding.machine",
            threads=marks["threads"],
            rate=format_number(marks["copy_gb_s"]),
            chunk=CHUNK_TOKENS,
        )
    )
    if marks["missing"]:
        sentences.append(text("lab.speed.finding.missing", names=", ".join(marks["missing"])))
    return " ".join(sentences)


EXPERIMENT = Experiment(info=INFO, work=_work, run=_run, check=_check)
