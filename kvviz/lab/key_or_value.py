"""Which matters more, K or V? The same few bits once for the keys, once for the values, once for both.

Arrays (``C`` configurations, in the table's order): ``kl``, ``bits`` ``(C,)``. Marks: ``configurations``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.catalogue import text
from kvviz.config import CacheConfig
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, Table, table
from kvviz.lab.bench import Bench, Experiment, Experimenting
from kvviz.lab.yardstick import Measured, Yardstick, check_scoring
from kvviz.quant_config import QuantConfig
from kvviz.schemes import cache_of, fitted
from kvviz.units import format_number

MANY = "int8:token:g64:absmax"
AXES = ("token", "channel")
BITS = ("4", "3", "2")

INFO = ExperimentInfo(
    "key-or-value",
    (
        Control("bits", "choice", "4", options=BITS),
        Control("axis", "choice", "token", options=AXES),
        Control("sinks", "int", 4, low=0, high=64),
        Control("start", "int", 3000, low=0, high=1_000_000),
        Control("length", "int", 768, low=4, high=8192),
        Control("skip", "int", 320, low=0, high=8190),
    ),
    group="quant",
    opens=True,
)
#: Which side has few bits.
FEW = {"neither": (), "value": ("value",), "key": ("key",), "both": ("key", "value")}


def configuration_label(name: str) -> str:
    """How one of :data:`FEW` is called."""
    return text(f"lab.key-or-value.configuration.{name}")


def caches(bench: Bench, settings: dict[str, Any]) -> dict[str, CacheConfig]:
    """By the names of :data:`FEW`. Values always have their groups along head_dim: ``axis`` is of keys."""
    facts, block = bench.model.facts, CacheConfig().block_size
    few = {
        "key": f"int{settings['bits']}:{settings['axis']}:g64:minmax",
        "value": f"int{settings['bits']}:token:g64:minmax",
    }
    made = {}
    for name, sides in FEW.items():
        key, value = (
            fitted(QuantConfig.parse(spec if side in sides else MANY), facts.head_dim, block)
            for side, spec in few.items()
        )
        made[name] = cache_of(
            key, value, head_dim=facts.head_dim, n_layers=facts.n_layers, sink_size=settings["sinks"]
        )
    return made


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    cache = CacheConfig(settings["sinks"])
    check_scoring(bench, settings["start"], settings["length"], settings["skip"], cache)


def _work(settings: dict[str, Any]) -> int:
    return int((1 + len(FEW)) * settings["length"])


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    full = Yardstick(bench.model, bench.text(settings["start"], settings["length"]), settings["skip"])
    yield from full.read()
    found: dict[str, Measured] = {}
    for name, cache in caches(bench, settings).items():
        found[name] = yield from full.measure(cache)
    labels = [configuration_label(name) for name in found]
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=bench.model.facts,
        text_sha256=bench.corpus.sha256,
        finding=_finding(found, settings),
        tables={"key-or-value": measured_table(labels, list(found.values()))},
        arrays={
            "kl": np.array([one.kl for one in found.values()]),
            "bits": np.array([one.bits or np.nan for one in found.values()]),
        },
        marks={"configurations": labels},
        configurations={
            label: one.cache.to_dict() for label, one in zip(labels, found.values(), strict=True)
        },
    )


def measured_table(labels: list[str], found: list[Measured]) -> Table:
    """One row for each configuration."""
    rows: list[list[Cell]] = [
        [label, one.cache.key.spec, one.cache.value.spec, one.bits, one.ppl, one.ppl_change, one.kl, one.top1,
         one.side_error("key"), one.side_error("value")]
        for label, one in zip(labels, found, strict=True)
    ]  # fmt: skip
    return table(
        [
            ("scheme_name", "text"), ("pair_key", "text"), ("pair_value", "text"), ("pair_bits", "norm"),
            ("ppl", "ppl"), ("pair_ppl_change", "share"), ("kl", "nats"), ("top1", "share"),
            ("key_error", "share"), ("value_error", "share"),
        ],
        rows,
    )  # fmt: skip


def _finding(found: dict[str, Measured], settings: dict[str, Any]) -> str:
    """Which way the numbers point, with how much."""
    key, value = found["key"].kl, found["value"].kl
    verdict = "key" if key > value else "value"
    more, less = max(key, value), min(key, value)
    return text(
        f"lab.key-or-value.finding.{verdict}",
        bits=settings["bits"], key=format_number(key), value=format_number(value),
        times=format_number(more / less) if less > 0 else "∞",
        key_error=f"{100 * (found['key'].side_error('key') or 0):.1f} %",
        value_error=f"{100 * (found['value'].side_error('value') or 0):.1f} %",
    )  # fmt: skip


EXPERIMENT = Experiment(info=INFO, work=_work, run=_run, check=_check)
