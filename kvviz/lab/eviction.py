"""What if the first tokens are evicted? One text at full precision, through a window, and through sinks and a
window that keep as many tokens together.

All configurations read the text side by side in the same chunks, so that no vocabulary-wide row outlives its
chunk. Does not know how the numbers are drawn.

Arrays of the result (``C`` configurations, full precision first; ``T - 1`` rows, each predicting the next
token): ``nll`` and ``rolling_nll`` ``(C, T - 1)``, the latter the mean of a row and those before it, at most
``rolling``. Marks: ``configurations``, ``sinks`` (None at full precision), ``leaves_at``: the first row
from which a window of the whole budget no longer sees token 0.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kvviz.cache import CacheSession
from kvviz.catalogue import text
from kvviz.config import CacheConfig, Middle
from kvviz.errors import ConfigError
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, Table, table
from kvviz.lab.bench import CHUNK_SIZE, Bench, Experiment, Experimenting, Tokens, nll_of_next, rolling_mean

SINKS = ("0", "1", "2", "4", "8")
#: mean NLL above full precision (nats) from which eviction is said to hurt: perplexity grows by a tenth
_HURTS_NATS = math.log(1.1)
_ROWS_AT_ONCE = 16

INFO = ExperimentInfo(
    "eviction",
    (
        Control("budget", "int", 260, low=2, high=4096),
        Control("sinks", "choices", list(SINKS), options=SINKS),
        Control("start", "int", 3000, low=0, high=1_000_000),
        Control("length", "int", 2048, low=2, high=32_768),
        Control("skip", "int", 512, low=0, high=32_766),
        Control("rolling", "int", 64, low=1, high=1024),
    ),
)


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    """Refuse a budget without a window, too little text, and more than full precision can read."""
    budget, length, skip = settings["budget"], settings["length"], settings["skip"]
    if max(_sinks(settings)) >= budget:
        raise ConfigError("lab_budget", sinks=max(_sinks(settings)), budget=budget)
    if skip >= length - 1:
        raise ConfigError("score_skip", skip=skip, tokens=length)
    if length > bench.model.facts.context_tokens:
        raise ConfigError("lab_context", tokens=length, context=bench.model.facts.context_tokens)
    bench.text(settings["start"], length)


def _sinks(settings: dict[str, Any]) -> list[int]:
    return [int(option) for option in settings["sinks"]]


def _work(settings: dict[str, Any]) -> int:
    return int(settings["length"]) * (1 + len(settings["sinks"]))


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    ids = bench.text(settings["start"], settings["length"])
    budget, sinks = settings["budget"], _sinks(settings)
    caches = [CacheConfig(), *(CacheConfig(n, budget - n, Middle.EVICT) for n in sinks)]
    sessions = [bench.model.new_session(cache) for cache in caches]
    try:
        nll, distances = yield from _read_side_by_side(bench, sessions, ids, settings["skip"])
        held = [session.memory().used_bytes for session in sessions]
    finally:
        for session in sessions:
            session.reset()
    counts: list[int | None] = [None, *sinks]
    main = _table(counts, budget, settings["skip"], nll, distances, held)
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=bench.model.facts,
        text_sha256=bench.corpus.sha256,
        finding=_finding(main, settings),
        tables={"configurations": main},
        arrays={"nll": nll, "rolling_nll": rolling_mean(nll, settings["rolling"])},
        marks={
            "configurations": main.column("configuration"),
            "sinks": counts,
            "leaves_at": budget,
            "skip": settings["skip"],
            "rolling": settings["rolling"],
        },
    )


def _read_side_by_side(
    bench: Bench, sessions: Sequence[CacheSession], ids: list[int], skip: int
) -> Generator[Tokens, None, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """NLL of every row ``(C, T - 1)``; mean KL to the first session and top-1 agreement with it, ``(C, 2)``,
    over rows ``skip ..``."""
    rows = len(ids) - 1
    nll = np.zeros((len(sessions), rows))
    sums = torch.zeros(len(sessions), 2, dtype=torch.float64)
    for start in range(0, len(ids), CHUNK_SIZE):
        chunk = ids[start : start + CHUNK_SIZE]
        stop = min(start + len(chunk), rows)  # the text's last row predicts nothing
        counted = slice(max(0, skip - start), max(0, stop - start))
        reference: Tensor | None = None
        for place, session in enumerate(sessions):
            logits = bench.model.forward(chunk, session, last_only=False)[: stop - start]
            nll[place, start:stop] = nll_of_next(logits, ids, start).double().cpu().numpy()
            reference = logits if reference is None else reference
            sums[place] += _distance(reference[counted], logits[counted])
            yield len(chunk)
    return nll, (sums / (rows - skip)).numpy()


def _distance(full: Tensor, tested: Tensor) -> Tensor:
    """Sums over rows of logits ``(R, V)``: KL to ``full``, top-1 agreements with it.

    A few rows at a time: copies as wide as the vocabulary cost more than what is computed in them.
    """
    sums = torch.zeros(2, dtype=torch.float64)
    for start in range(0, full.shape[0], _ROWS_AT_ONCE):
        reference, other = full[start : start + _ROWS_AT_ONCE], tested[start : start + _ROWS_AT_ONCE]
        p, q = torch.log_softmax(reference, dim=-1), torch.log_softmax(other, dim=-1)
        kl = (p.exp() * (p - q)).sum(-1).double().sum()
        agreements = (reference.argmax(-1) == other.argmax(-1)).double().sum()
        sums += torch.stack([kl, agreements]).cpu()
    return sums


def _table(
    counts: Sequence[int | None],
    budget: int,
    skip: int,
    nll: NDArray[np.float64],
    distances: NDArray[np.float64],
    held: Sequence[int],
) -> Table:
    before, after = nll[:, :budget].mean(1), nll[:, budget:]
    rows: list[list[Cell]] = []
    for place, sinks in enumerate(counts):
        rows.append(
            [
                _name(sinks),
                sinks,
                None if sinks is None else budget - sinks,
                math.exp(nll[place, skip:].mean()),
                float(distances[place, 0]),
                float(distances[place, 1]),
                float(before[place]),
                float(after[place].mean()) if after.shape[1] else None,
                held[place],
            ]
        )
    return table(
        [
            ("configuration", "text"),
            ("sinks", "count"),
            ("window", "count"),
            ("ppl", "ppl"),
            ("kl", "nats"),
            ("top1", "share"),
            ("nll_before", "nats"),
            ("nll_after", "nats"),
            ("cache_bytes", "bytes"),
        ],
        rows,
    )


def _name(sinks: int | None) -> str:
    if sinks is None:
        return text("lab.eviction.configuration.full")
    if sinks == 0:
        return text("lab.eviction.configuration.window")
    return text(f"lab.eviction.configuration.{'sink' if sinks == 1 else 'sinks'}", n=sinks)


def _finding(main: Table, settings: dict[str, Any]) -> str:
    """What the numbers say, whichever way they point."""
    if settings["length"] <= settings["budget"]:
        return text("lab.eviction.finding.nothing_evicted", **settings)
    keys = [column.key for column in main.columns]
    rows: list[dict[str, Any]] = [dict(zip(keys, row, strict=True)) for row in main.rows]
    full, tested = rows[0], rows[1:]
    window = next((row for row in tested if row["sinks"] == 0), None)
    with_sinks = [row for row in tested if row["sinks"]]
    if window is None or not with_sinks:
        told = ", ".join(f"{row['configuration']} {row['ppl']:.2f}" for row in tested)
        return text("lab.eviction.finding.plain", full=f"{full['ppl']:.2f}", told=told, **settings)
    best = min(with_sinks, key=lambda row: row["ppl"])
    lost, left = (math.log(row["ppl"] / full["ppl"]) for row in (window, best))
    key = "no_collapse" if lost < _HURTS_NATS else "repaired" if left < lost / 2 else "not_repaired"
    return text(
        f"lab.eviction.finding.{key}",
        budget=settings["budget"],
        full=f"{full['ppl']:.2f}",
        window=f"{window['ppl']:.2f}",
        window_kl=f"{window['kl']:.3f}",
        best=f"{best['ppl']:.2f}",
        best_kl=f"{best['kl']:.3f}",
        name=best["configuration"],
    )


EXPERIMENT = Experiment(info=INFO, work=_work, run=_run, check=_check)
