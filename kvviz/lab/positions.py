"""Where do keys stand after eviction? Sinks and a window read a text far beyond the trained context, with
positions as the text put them, counted inside the cache, or shifted for the keys and not for the query.

The logits of ``sample`` evenly spread rows of each chunk are computed, not of all: a vocabulary is wide. Does
not know how the numbers are drawn.

Arrays of the result (``M`` modes, ``N`` sampled rows, ``K`` chunks): ``row`` ``(N,)`` positions in the text
read; ``nll`` and ``rolling_nll`` ``(M, N)``, the latter over at most ``rolling`` sampled rows; ``held_at``
``(K,)`` and ``held_bytes`` ``(M, K)``, the cache after each chunk. Marks: ``modes``, ``context``, ``sample``,
``chunk``, ``rolling``.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvviz.cache import CacheSession
from kvviz.cache.plan import StepPlan
from kvviz.catalogue import text
from kvviz.config import CacheConfig, Middle, Position
from kvviz.errors import ConfigError
from kvviz.events import Tier
from kvviz.experiment import Cell, Column, Control, ExperimentInfo, LabResult, Table, table
from kvviz.lab.bench import CHUNK_SIZE, Bench, Experiment, Experimenting, Tokens, nll_of_sample, rolling_mean
from kvviz.units import format_bytes

MODES = ("original", "in_cache", "wrong")
_BANDS = 14
_APART_NATS = 1.0  # rolling NLL above the best mode's from which a mode is said to have fallen apart

INFO = ExperimentInfo(
    "positions",
    (
        Control("modes", "choices", ["original", "in_cache"], options=MODES),
        Control("length", "int", 14_000, low=2, high=100_000),
        Control("sinks", "int", 4, low=1, high=64),
        Control("window", "int", 124, low=1, high=4096),
        Control("start", "int", 3000, low=0, high=1_000_000),
        Control("sample", "int", 32, low=1, high=CHUNK_SIZE),
        Control("rolling", "int", 64, low=1, high=1024),
    ),
    held_tokens=lambda settings: settings["sinks"] + settings["window"],  # however long the text is
)


class ShiftedKeysSession(CacheSession):
    """The mistake: after eviction the window's keys are numbered inside the cache, the query is not.

    Moving the keys down by the evicted tokens is, rotary positions being relative, moving the query up by as
    much where it meets them. Only for showing what goes wrong; no run can ask for it.
    """

    def stands(self, step: StepPlan, tier: Tier) -> list[int] | None:
        """Queries meet the sinks where the text put both, and the window from too far away."""
        if tier is Tier.SINK:
            return None
        rows = range(step.first, step.stop)
        return [row + row - self.plan.cache_position(row) for row in rows]


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    """Refuse positions that the model's rotary scaling forbids, and a cache longer than its context."""
    refusal, context = bench.model.in_cache_refusal, bench.model.facts.context_tokens
    if refusal and settings["modes"] != ["original"]:
        raise ConfigError("in_cache_refused", reason=refusal)
    held = settings["sinks"] + settings["window"]
    if held > context:
        raise ConfigError("window_context", held=held, context=context)
    bench.text(settings["start"], settings["length"])


def _work(settings: dict[str, Any]) -> int:
    return int(settings["length"]) * len(settings["modes"])


def new_session(bench: Bench, mode: str, sinks: int, window: int) -> CacheSession:
    """A session that evicts and counts positions by ``mode``."""
    if mode == "wrong":
        return bench.model.new_session(CacheConfig(sinks, window, Middle.EVICT), ShiftedKeysSession)
    return bench.model.new_session(CacheConfig(sinks, window, Middle.EVICT, position=Position(mode)))


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    ids = bench.text(settings["start"], settings["length"])
    nll: list[NDArray[np.float64]] = []
    held: list[list[int]] = []
    for mode in settings["modes"]:
        session = new_session(bench, mode, settings["sinks"], settings["window"])
        try:
            read, bytes_held = yield from _read(bench, session, ids, settings["sample"])
        finally:
            session.reset()
        nll.append(read)
        held.append(bytes_held)
    stops = [*range(CHUNK_SIZE, len(ids), CHUNK_SIZE), len(ids)]
    arrays = {
        "row": np.concatenate([_sampled(ids, start, settings["sample"])[1] for start in _starts(ids)]),
        "nll": np.stack(nll),
        "rolling_nll": rolling_mean(np.stack(nll), settings["rolling"]),
        "held_at": np.asarray(stops),
        "held_bytes": np.asarray(held),
    }
    context = bench.model.facts.context_tokens
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=bench.model.facts,
        text_sha256=bench.corpus.sha256,
        finding=_finding(arrays, settings, context),
        tables={"modes": _modes(arrays, settings, context), "bands": _bands(arrays, settings)},
        arrays=arrays,
        marks={
            "modes": [_name(mode) for mode in settings["modes"]],
            "context": context,
            "sample": settings["sample"],
            "chunk": CHUNK_SIZE,
            "rolling": settings["rolling"],
        },
    )


def _starts(ids: list[int]) -> range:
    return range(0, len(ids), CHUNK_SIZE)


def _sampled(ids: list[int], start: int, sample: int) -> tuple[list[int], NDArray[np.int64]]:
    """Rows of the chunk at ``start`` whose prediction is scored: counted in the chunk, and in the text."""
    rows = min(CHUNK_SIZE, len(ids) - 1 - start)  # the text's last row predicts nothing
    inside = np.unique(np.linspace(0, rows - 1, min(sample, rows)).astype(np.int64)) if rows else np.arange(0)
    return inside.tolist(), inside + start


def _read(
    bench: Bench, session: CacheSession, ids: list[int], sample: int
) -> Generator[Tokens, None, tuple[NDArray[np.float64], list[int]]]:
    """NLL of the sampled rows ``(N,)``, and bytes in use after each chunk."""
    nll: list[NDArray[np.float64]] = []
    held: list[int] = []
    for start in _starts(ids):
        chunk = ids[start : start + CHUNK_SIZE]
        inside, rows = _sampled(ids, start, sample)
        logits = bench.model.forward(chunk, session, last_only=False, rows=inside)
        nll.append(nll_of_sample(logits, ids, rows.tolist()).double().cpu().numpy())
        held.append(session.memory().used_bytes)
        yield len(chunk)
    return np.concatenate(nll), held


def _name(mode: str) -> str:
    return text(f"lab.positions.control.modes.option.{mode}")


def _ppl(nll: NDArray[np.float64]) -> float | None:
    return math.exp(float(nll.mean())) if nll.size else None


def _modes(arrays: dict[str, NDArray[Any]], settings: dict[str, Any], context: int) -> Table:
    row = arrays["row"]
    evicting = row >= settings["sinks"] + settings["window"]
    lines: list[list[Cell]] = []
    for mode, nll, held in zip(settings["modes"], arrays["nll"], arrays["held_bytes"], strict=True):
        inside, beyond = nll[evicting & (row < context)], nll[row >= context]
        apart = _apart_at(arrays, settings, mode)
        lines.append(
            [_name(mode), _ppl(inside), _ppl(beyond), _ppl(nll[-len(nll) // 8 :]), apart, int(held[-1])]
        )
    columns: list[Any] = [("mode", "text"), ("ppl_inside", "ppl"), ("ppl_beyond", "ppl"), ("ppl_end", "ppl")]
    return table([*columns, ("apart_at", "count"), ("cache_bytes", "bytes")], lines)


def _bands(arrays: dict[str, NDArray[Any]], settings: dict[str, Any]) -> Table:
    """Mean NLL of each mode over stretches of the text, and the cache at their ends."""
    row, length = arrays["row"], settings["length"]
    edges = np.unique(np.linspace(0, length, _BANDS + 1).astype(np.int64))
    lines: list[tuple[Cell, ...]] = []
    for low, high in pairwise(edges.tolist()):
        here = (row >= low) & (row < high)
        means = [float(nll[here].mean()) if here.any() else None for nll in arrays["nll"]]
        chunk = int(np.searchsorted(arrays["held_at"], high))
        held = [int(values[chunk]) for values in arrays["held_bytes"]]
        lines.append((low, high, *means, max(held)))
    columns = [Column("row_from", "count"), Column("row_to", "count")]
    columns += [Column(f"nll_{mode}", "nats") for mode in settings["modes"]]
    return Table((*columns, Column("cache_bytes", "bytes")), tuple(lines))


def _apart_at(arrays: dict[str, NDArray[Any]], settings: dict[str, Any], mode: str) -> int | None:
    """The first sampled row from which the rolling NLL stays above the best mode's to the end."""
    rolling = arrays["rolling_nll"]
    worse = rolling[settings["modes"].index(mode)] - rolling.min(0) > _APART_NATS
    if not worse.size or not worse[-1]:
        return None
    fine = np.flatnonzero(~worse)
    return int(arrays["row"][fine[-1] + 1 if fine.size else 0])


def _finding(arrays: dict[str, NDArray[Any]], settings: dict[str, Any], context: int) -> str:
    """What the numbers say, whichever way they point."""
    modes = _modes(arrays, settings, context)
    full = settings["sinks"] + settings["window"]
    if settings["length"] <= full:
        return text("lab.positions.finding.nothing_evicted", length=settings["length"], held=full)
    told = []
    for mode, inside, beyond, end, apart, _ in modes.rows:
        key = "inside" if beyond is None else "beyond" if apart is None else "apart"
        told.append(
            text(
                f"lab.positions.finding.{key}", mode=mode, inside=_two(inside), beyond=_two(beyond),
                end=_two(end), apart=apart,
            )
        )  # fmt: skip
    filled = arrays["held_bytes"][:, arrays["held_at"] >= full]
    constant = filled.min() == filled.max()
    told.append(
        text(
            f"lab.positions.finding.{'constant' if constant else 'varying'}",
            low=format_bytes(int(filled.min())), high=format_bytes(int(filled.max())),
        )
    )  # fmt: skip
    return " ".join([text("lab.positions.finding.begin", context=f"{context:,}"), *told])


def _two(value: Cell) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "–"


EXPERIMENT = Experiment(info=INFO, work=_work, run=_run, check=_check)
