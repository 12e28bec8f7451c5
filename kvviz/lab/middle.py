"""How much attention would eviction throw away? The share of every tier, from the merge, nothing evicted.

The cache keeps everything, but reads sinks, window and the middle between them as parts: their log-sum-exps
give each part's share. ``result.arrays``: ``mass`` ``(3, L, H)``, the mean share of sinks, middle and window
over the rows that have a middle; ``by_row`` ``(3, R)``, the same over layers and heads, for each such row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kvviz.attention import Attention
from kvviz.cache.plan import StepPlan
from kvviz.catalogue import text
from kvviz.config import CacheConfig, Middle
from kvviz.engine.run import check_length
from kvviz.errors import ConfigError
from kvviz.events import Tier
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, Table, table
from kvviz.lab.bench import Bench, Experiment, Experimenting
from kvviz.units import format_share

PARTS = ("sink", "middle", "window")
_PART_OF = {Tier.SINK: 0, Tier.EXACT: 1, Tier.WINDOW: 2}
LEVELS = (0.1, 0.3)
MOST_NAMED = 3


class PartMass:
    """Observes one session: the share of each of ``PARTS`` for every row from ``first_row`` on."""

    def __init__(self, *, n_layers: int, n_heads: int, tokens: int, first_row: int) -> None:
        self._first_row = first_row
        self._sums = torch.zeros(len(PARTS), n_layers, n_heads, dtype=torch.float64)
        self._by_row = torch.zeros(len(PARTS), tokens - first_row, dtype=torch.float64)

    def __call__(self, layer: int, result: Attention, step: StepPlan) -> None:
        """Add what one layer's rows read."""
        skip = max(0, self._first_row - step.first)
        if step.first + skip >= step.stop:
            return
        place = slice(step.first + skip - self._first_row, step.stop - self._first_row)
        masses = result.mass()[:, 0, :, skip:].double().cpu()  # (P, H, Q)
        for part, mass in zip(step.parts, masses, strict=True):
            index = _PART_OF[part.tier]
            self._sums[index, layer] += mass.sum(-1)
            self._by_row[index, place] += mass.sum(0)

    def mean(self) -> NDArray[np.float64]:
        """``(3, L, H)`` over the rows."""
        means: NDArray[np.float64] = self._sums.numpy() / self._by_row.shape[1]
        return means

    def by_row(self) -> NDArray[np.float64]:
        """``(3, R)`` over layers and heads."""
        _, n_layers, n_heads = self._sums.shape
        means: NDArray[np.float64] = self._by_row.numpy() / (n_layers * n_heads)
        return means


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    facts = bench.model.facts
    sinks, window = settings["sinks"], settings["window"]
    mass = PartMass(
        n_layers=facts.n_layers,
        n_heads=facts.n_heads,
        tokens=settings["tokens"],
        first_row=sinks + window,
    )
    session = bench.model.new_session(CacheConfig(sinks, window, Middle.KEEP))
    session.observer = mass
    yield from bench.read(bench.text(0, settings["tokens"]), session)
    session.reset()
    means, even = mass.mean(), even_shares(sinks, window, settings["tokens"])
    return LabResult(
        experiment="middle",
        settings=settings,
        model=facts,
        text_sha256=bench.corpus.sha256,
        finding=_finding(means, even[1], settings),
        tables={"parts": _parts(means, even), "part_layers": _layers(means), "part_heads": _heads(means)},
        arrays={"mass": means, "by_row": mass.by_row()},
        marks={"parts": list(PARTS), "first_row": sinks + window},
    )


def even_shares(sinks: int, window: int, tokens: int) -> tuple[float, float, float]:
    """Mean share of each of ``PARTS`` if every row with a middle gave all tokens that it sees the same."""
    seen = np.arange(sinks + window, tokens) + 1.0
    sink, recent = float((sinks / seen).mean()), float((window / seen).mean())
    return sink, 1 - sink - recent, recent


def _parts(means: NDArray[np.float64], even: tuple[float, float, float]) -> Table:
    rows: list[list[Cell]] = []
    for part, mass, spread in zip(PARTS, means, even, strict=True):
        above = [_above(mass, level) for level in LEVELS]
        rows.append([part, float(mass.mean()), spread, float(mass.max()), *above])
    return table(
        [
            ("part", "text"),
            ("part_mean", "share"),
            ("part_even", "share"),
            ("part_most", "share"),
            ("heads_above_10", "share"),
            ("heads_above_30", "share"),
        ],
        rows,
    )


def _above(mass: NDArray[np.float64], level: float) -> float:
    return float((mass > level).mean())


def _layers(means: NDArray[np.float64]) -> Table:
    rows = [[layer, *means[:, layer].mean(-1).tolist()] for layer in range(means.shape[1])]
    return table([("layer", "count"), *((f"{part}_mean", "share") for part in PARTS)], rows)


def _heads(means: NDArray[np.float64]) -> Table:
    rows = [[layer, head, *means[:, layer, head].tolist()] for layer, head in np.ndindex(means.shape[1:])]
    columns = [("layer", "count"), ("head", "count"), *((f"{part}_mean", "share") for part in PARTS)]
    return table(columns, rows)  # type: ignore[arg-type]


def _finding(means: NDArray[np.float64], even: float, settings: dict[str, Any]) -> str:
    sink, middle, window = (format_share(float(mass.mean())) for mass in means)
    n_heads = means.shape[2]
    most = np.argsort(-means[1], axis=None)[:MOST_NAMED].tolist()
    named = ", ".join(
        text(
            "lab.middle.finding.head",
            layer=place // n_heads,
            head=place % n_heads,
            share=format_share(float(means[1].flat[place])),
        )
        for place in most
    )
    return text(
        "lab.middle.finding.said",
        sinks=settings["sinks"],
        window=settings["window"],
        middle=middle,
        even=format_share(even),
        sink=sink,
        recent=window,
        above=format_share(_above(means[1], LEVELS[0])),
        level=format_share(LEVELS[0]),
        named=named,
    )


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    check_length(bench.model, False, settings["tokens"], 0)
    held = settings["sinks"] + settings["window"]
    if settings["tokens"] <= held:
        raise ConfigError("lab_no_middle", tokens=settings["tokens"], held=held)


EXPERIMENT = Experiment(
    info=ExperimentInfo(
        "middle",
        (
            Control("sinks", "int", 4, low=0, high=64),
            Control("window", "int", 128, low=1, high=4096),
            Control("tokens", "int", 1024, low=16, high=8192),
        ),
    ),
    work=lambda settings: int(settings["tokens"]),
    run=_run,
    check=_check,
)
