"""Is there a sink? The weight on the first tokens, and what is special about the first token inside.

Texts of the corpus, random tokens, and one token repeated. Knows no drawing.

``result.arrays``, with ``S`` kinds of text in the order of ``result.marks["kinds"]``:

* ``mass`` ``(S, L, H)``: mean weight on the first token, all rows, mean over texts;
* ``hidden_norm``, ``key_norm``, ``value_norm`` ``(S, L, T)``: mean over texts; K and V mean over KV heads;
* ``peak`` ``(S, L, T)``: largest absolute number of the residual stream, in the first text of the kind.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kvviz.catalogue import text
from kvviz.config import CacheConfig
from kvviz.engine.run import check_length
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, Table, table
from kvviz.lab.bench import Bench, Experiment, Experimenting, Tokens
from kvviz.lab.mass import EPSILON, TWICE, PositionMass, even_weight, norms, sink_rate
from kvviz.units import format_share

KINDS = ("natural", "random", "repeated")
POSITIONS = 4
MOST_ACTIVATIONS = 3  # a layer
_RANKS = 100_000  # sizes nearer than this share of the largest are equal
_SEED = 0


@dataclass(frozen=True, slots=True)
class Activation:
    """One large number of the residual stream; ``ratio`` is to the layer's median absolute number."""

    layer: int
    position: int
    channel: int
    value: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What one text showed: ``weight`` ``(L, H, POSITIONS)``, norms and ``peak`` ``(L, T)``."""

    ids: list[int]
    weight: NDArray[np.float64]
    hidden_norm: NDArray[np.float64]
    key_norm: NDArray[np.float64]
    value_norm: NDArray[np.float64]
    peak: NDArray[np.float64]
    largest: list[Activation]


def texts_of(bench: Bench, kind: str, texts: int, tokens: int) -> list[list[int]]:
    """``texts`` texts of one kind. Random tokens are drawn evenly from all that are not special."""
    if kind == "natural":
        return bench.slices(texts, tokens)
    ordinary = _ordinary_ids(bench)
    draw = np.random.default_rng(_SEED)
    if kind == "random":
        return draw.choice(ordinary, (texts, tokens)).tolist()  # type: ignore[no-any-return]
    return [[int(token)] * tokens for token in draw.choice(ordinary, texts)]


def _ordinary_ids(bench: Bench) -> list[int]:
    special = bench.model.token_text.special_ids
    return [token for token in range(bench.model.facts.vocab_size) if token not in special]


def read_text(bench: Bench, ids: list[int]) -> Generator[Tokens, None, Reading]:
    """Read one text at full precision in one piece, watching weights, norms and the residual stream."""
    facts = bench.model.facts
    session = bench.model.new_session(CacheConfig())
    mass = PositionMass(n_layers=facts.n_layers, n_heads=facts.n_heads, positions=POSITIONS)
    session.observer = mass
    streams: list[Tensor] = []
    yield from bench.read(
        ids, session, chunk_size=len(ids), hidden=lambda layer, stream: streams.append(stream[0].float())
    )
    largest = [item for layer, stream in enumerate(streams) for item in _largest(layer, stream)]
    reading = Reading(
        ids=ids,
        weight=mass.mean(),
        hidden_norm=np.stack([norms(stream[None]) for stream in streams]),
        key_norm=np.stack([norms(layer.exact("key")) for layer in session.layers]),
        value_norm=np.stack([norms(layer.exact("value")) for layer in session.layers]),
        peak=np.stack([stream.abs().amax(1).double().cpu().numpy() for stream in streams]),
        largest=largest,
    )
    session.reset()
    return reading


def _largest(layer: int, stream: Tensor) -> list[Activation]:
    """The few largest numbers of ``stream (T, E)`` by size; of equal ones, as tokens that repeat have them,
    the first, whatever rounding makes of them."""
    sizes = stream.abs()
    median = float(sizes.median())
    ranked = (sizes.flatten() / sizes.max() * _RANKS).round()
    places = torch.sort(ranked, descending=True, stable=True).indices[:MOST_ACTIVATIONS].tolist()
    found = []
    for place in places:
        position, channel = divmod(place, stream.shape[1])
        value = float(stream[position, channel])
        found.append(Activation(layer, position, channel, value, abs(value) / median if median else 0.0))
    return found


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    kinds: list[str] = settings["kinds"]
    readings: dict[str, list[Reading]] = {}
    for kind in kinds:
        readings[kind] = []
        for ids in texts_of(bench, kind, settings["texts"], settings["tokens"]):
            readings[kind].append((yield from read_text(bench, ids)))
    rates = _rates(readings, settings["tokens"])

    def mean(name: str) -> NDArray[np.float64]:
        return np.stack([np.mean([getattr(r, name) for r in readings[kind]], axis=0) for kind in kinds])

    arrays = {name: mean(name) for name in ("hidden_norm", "key_norm", "value_norm")}
    arrays["mass"] = mean("weight")[..., 0]
    arrays["peak"] = np.stack([readings[kind][0].peak for kind in kinds])
    first = {kind: bench.model.labels(readings[kind][0].ids, at_start=False) for kind in kinds}
    labels = {kind: [label.display for label in first[kind]] for kind in kinds}
    return LabResult(
        experiment="sink",
        settings=settings,
        model=bench.model.facts,
        text_sha256=bench.corpus.sha256 if "natural" in kinds else "",
        finding=_finding(rates, kinds, arrays["mass"].shape[1] * arrays["mass"].shape[2]),
        tables={
            "rates": rates,
            "norms": _norms(arrays, kinds),
            "activations": _activations(readings, labels),
            "head_mass": _heads(arrays["mass"], kinds),
        },
        arrays=arrays,
        marks={"kinds": kinds, "epsilon": EPSILON, "labels": labels},
    )


def _rates(readings: dict[str, list[Reading]], tokens: int) -> Table:
    rows: list[list[Cell]] = []
    for kind, found in readings.items():
        weights = np.stack([reading.weight for reading in found])  # (texts, L, H, POSITIONS)
        rate = sink_rate(weights).mean(0)
        for position in range(min(POSITIONS, tokens)):
            weight = float(weights[..., position].mean())
            even = even_weight(tokens, position)
            rows.append([kind, position + 1, float(rate[position]), weight, even])
    columns = [("kind", "text"), ("k", "count"), ("sink_rate", "share"), ("mean_weight", "share")]
    return table([*columns, ("even_weight", "share")], rows)  # type: ignore[list-item]


def _heads(mass: NDArray[np.float64], kinds: list[str]) -> Table:
    rows = [[kinds[s], layer, head, float(mass[s, layer, head])] for s, layer, head in np.ndindex(mass.shape)]
    return table([("kind", "text"), ("layer", "count"), ("head", "count"), ("first_mass", "share")], rows)


def _norms(arrays: dict[str, NDArray[np.float64]], kinds: list[str]) -> Table:
    rows: list[list[Cell]] = []
    for s, kind in enumerate(kinds):
        for layer in range(arrays["mass"].shape[1]):
            row: list[Cell] = [kind, layer]
            for name in ("hidden_norm", "key_norm", "value_norm"):
                first, *others = arrays[name][s, layer].tolist()
                row += [first, float(np.median(others)) if others else None]
            rows.append(row)
    return table(
        [
            ("kind", "text"),
            ("layer", "count"),
            ("hidden_first", "norm"),
            ("hidden_others", "norm"),
            ("key_first", "norm"),
            ("key_others", "norm"),
            ("value_first", "norm"),
            ("value_others", "norm"),
        ],
        rows,
    )


def _activations(readings: dict[str, list[Reading]], labels: dict[str, list[str]]) -> Table:
    rows: list[list[Cell]] = [
        [kind, a.layer, a.position, labels[kind][a.position], a.channel, a.value, a.ratio]
        for kind, found in readings.items()
        for a in found[0].largest
    ]
    return table(
        [
            ("kind", "text"),
            ("layer", "count"),
            ("position", "count"),
            ("token", "text"),
            ("channel", "count"),
            ("activation", "norm"),
            ("times_median", "norm"),
        ],
        rows,
    )


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    check_length(bench.model, False, settings["tokens"], 0)


def _finding(rates: Table, kinds: list[str], heads: int) -> str:
    """A model without a sink is said to have none."""
    rows: list[dict[str, Any]] = [
        dict(zip([column.key for column in rates.columns], row, strict=True)) for row in rates.rows
    ]
    first = {row["kind"]: row for row in rows if row["k"] == 1}
    epsilon = format_share(EPSILON)
    weight, even = (format_share(first[kinds[0]][key]) for key in ("mean_weight", "even_weight"))
    if not any(row["sink_rate"] for row in rows):
        return text("lab.sink.finding.none", heads=heads, epsilon=epsilon, weight=weight, even=even)
    stands_out = any(row["mean_weight"] > TWICE * row["even_weight"] for row in first.values())
    shares = ", ".join(
        text(
            "lab.sink.finding.kind",
            kind=text(f"lab.sink.control.kinds.option.{kind}"),
            share=format_share(first[kind]["sink_rate"]),
        )
        for kind in kinds
    )
    return text(
        f"lab.sink.finding.{'some' if stands_out else 'faint'}",
        shares=shares,
        heads=heads,
        epsilon=epsilon,
        weight=weight,
        even=even,
        kind=text(f"lab.sink.control.kinds.option.{kinds[0]}"),
    )


EXPERIMENT = Experiment(
    info=ExperimentInfo(
        "sink",
        (
            Control("kinds", "choices", list(KINDS), options=KINDS),
            Control("tokens", "int", 64, low=16, high=512),
            Control("texts", "int", 8, low=1, high=64),
        ),
    ),
    work=lambda settings: len(settings["kinds"]) * settings["texts"] * settings["tokens"],
    run=_run,
    check=_check,
)
