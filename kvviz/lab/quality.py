"""What do fewer bits cost? Every named scheme on the same forced tokens: bits really stored, and what they do
to the next token.

Arrays (``S`` schemes, in the table's order): ``bits``, ``kl`` ``(S,)``; ``front`` ``(S,)``, True where no
other scheme has as few bits and as little KL. Marks: ``schemes`` (names), ``labels`` (how they are called).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvviz.catalogue import text
from kvviz.config import CacheConfig
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, Table, table
from kvviz.lab.bench import Bench, Experiment, Experimenting
from kvviz.lab.yardstick import Measured, Yardstick, check_scoring, learn
from kvviz.schemes import Scheme, cache_of, scheme_names, schemes
from kvviz.units import format_number

#: What codebooks are learnt on: the corpus's first tokens, before any text that is scored.
CALIBRATION_TOKENS = 1024

INFO = ExperimentInfo(
    "quality",
    (
        Control("schemes", "choices", list(scheme_names()), options=scheme_names()),
        Control("sinks", "int", 4, low=0, high=64),
        Control("edges", "int", 0, low=0, high=8),
        Control("start", "int", 3000, low=CALIBRATION_TOKENS, high=1_000_000),
        Control("length", "int", 768, low=4, high=8192),
        Control("skip", "int", 320, low=0, high=8190),
    ),
    group="quant",
    opens=True,
)
#: Where the README's numbers come from: the slice of all reference numbers.
FULL_SLICE = {"start": 3000, "length": 2048, "skip": 512}


def scheme_label(name: str) -> str:
    """How a scheme is called."""
    return text(f"lab.quality.control.schemes.option.{name}")


def pareto_front(bits: NDArray[np.float64], loss: NDArray[np.float64]) -> NDArray[np.bool_]:
    """True where no other point ``(S,)`` is at least as good in both and better in one."""
    as_good = (bits[:, None] <= bits) & (loss[:, None] <= loss)
    better = (bits[:, None] < bits) | (loss[:, None] < loss)
    front: NDArray[np.bool_] = ~np.any(as_good & better, axis=0)
    return front


def _cache(bench: Bench, scheme: Scheme, settings: dict[str, Any]) -> CacheConfig:
    facts, block = bench.model.facts, CacheConfig().block_size
    key, value = scheme.sides(facts.head_dim, block)
    return cache_of(
        key,
        value,
        head_dim=facts.head_dim,
        n_layers=facts.n_layers,
        sink_size=settings["sinks"],
        edge_layers=settings["edges"],
    )


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    cache = CacheConfig(settings["sinks"])
    check_scoring(bench, settings["start"], settings["length"], settings["skip"], cache)
    for scheme in schemes(settings["schemes"]):
        bench.model.check(_cache(bench, scheme, settings), calibrated=True)


def _work(settings: dict[str, Any]) -> int:
    chosen = schemes(settings["schemes"])
    learning = CALIBRATION_TOKENS if any(scheme.needs_calibration for scheme in chosen) else 0
    return int(learning + (1 + len(chosen)) * settings["length"])


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    chosen = schemes(settings["schemes"])
    caches = [_cache(bench, scheme, settings) for scheme in chosen]
    learnt = yield from learn(bench, caches, CALIBRATION_TOKENS)
    full = Yardstick(bench.model, bench.text(settings["start"], settings["length"]), settings["skip"])
    yield from full.read()
    found = []
    for cache in caches:
        found.append((yield from full.measure(cache, learnt.get(cache))))
    names = [scheme.name for scheme in chosen]
    labels = [scheme_label(name) for name in names]
    bits = np.array([one.bits or np.nan for one in found])
    kl = np.array([one.kl for one in found])
    front = pareto_front(bits, kl)
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=bench.model.facts,
        text_sha256=bench.corpus.sha256,
        finding=_finding(found, labels, front),
        tables={"quality": _table(found, labels, front)},
        arrays={"bits": bits, "kl": kl, "front": front},
        marks={"schemes": names, "labels": labels},
        configurations={label: cache.to_dict() for label, cache in zip(labels, caches, strict=True)},
    )


def _table(found: list[Measured], labels: list[str], front: NDArray[np.bool_]) -> Table:
    rows: list[list[Cell]] = []
    for label, one, is_front in zip(labels, found, front.tolist(), strict=True):
        row: list[Cell] = [label, one.cache.key.spec, one.cache.value.spec, one.bits, one.ppl]
        row += [one.ppl_change, one.kl, one.top1, one.logit_error]
        row += [one.side_error("key"), one.side_error("value")]
        rows.append([*row, text("lab.quality.on_front") if is_front else ""])
    return table(
        [
            ("scheme_name", "text"), ("pair_key", "text"), ("pair_value", "text"), ("pair_bits", "norm"),
            ("ppl", "ppl"), ("pair_ppl_change", "share"), ("kl", "nats"), ("top1", "share"),
            ("logit_error", "norm"), ("key_error", "share"), ("value_error", "share"), ("front", "text"),
        ],
        rows,
    )  # fmt: skip


def _finding(found: list[Measured], labels: list[str], front: NDArray[np.bool_]) -> str:
    best = sorted((one.bits or 0.0, one.kl, label) for one, label in zip(found, labels, strict=True))
    on_front = [
        text("lab.quality.finding.point", name=label, bits=f"{bits:.2f}", kl=format_number(kl))
        for bits, kl, label in best
        if front[labels.index(label)]
    ]
    return text(
        "lab.quality.finding.said",
        ppl=f"{found[0].ppl_full:.2f}",
        count=len(on_front),
        all=len(found),
        points="; ".join(on_front),
    )


EXPERIMENT = Experiment(info=INFO, work=_work, run=_run, check=_check)
