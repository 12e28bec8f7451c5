"""Does the sink need meaning? The same text behind other first tokens, and where the weight goes.

``result.arrays``, with ``V`` variants in the order of ``result.marks["variants"]``, the unchanged text first:

* ``position_mass`` ``(V, POSITIONS)``: mean weight on each of the first positions, over rows from
  ``FROM_ROW`` on, layers and heads;
* ``head_mass`` ``(V, L, H)``: the same for the first position alone, by layer and head.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kvviz.cache import CacheSession
from kvviz.catalogue import text
from kvviz.config import CacheConfig, Middle
from kvviz.engine.run import check_length
from kvviz.errors import ConfigError
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, Table, table
from kvviz.lab.bench import Bench, Experiment, Experimenting, Tokens, nll_of_next
from kvviz.lab.mass import TWICE, PositionMass, even_weight, sink_rate
from kvviz.units import format_share

CHANGES = ("newlines", "punctuation", "random_words", "sink_token")
UNCHANGED = "unchanged"
POSITIONS = 8
FROM_ROW = 128  # rows before it see little beside the first tokens
STREAMING = CacheConfig(4, FROM_ROW - 4, Middle.EVICT)  # its first row that misses a token is FROM_ROW
_MARKS = ".,;:!?"
_SEED = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """One variant: its ids, ``weight (L, H, POSITIONS)``, and perplexities of the text after ``FROM_ROW``."""

    ids: list[int]
    weight: NDArray[np.float64]
    ppl_keep: float
    ppl_streaming: float


def variant_ids(bench: Bench, change: str, ids: list[int], replaced: int) -> list[int]:
    """``ids`` with its first ``replaced`` tokens changed, or with one token more in front."""
    if change == UNCHANGED:
        return ids
    if change == "sink_token":
        return [_sink_token(bench), *ids]
    if change == "newlines":
        front = [_last_id(bench, "\n")] * replaced
    elif change == "punctuation":
        front = [_last_id(bench, _MARKS[i % len(_MARKS)]) for i in range(replaced)]
    else:
        front = _random_words(bench, replaced)
    return front + ids[replaced:]


def _last_id(bench: Bench, mark: str) -> int:
    """The token of ``mark`` itself: some tokenizers write a space before the first."""
    return bench.model.encode(mark, False)[-1]


def _sink_token(bench: Bench) -> int:
    """The token that begins a text, or else the first special one.

    Raises:
        ConfigError: the tokenizer has none.
    """
    begins: int | None = bench.model.tokenizer.bos_token_id
    special = bench.model.token_text.special_ids
    if begins is None and not special:
        raise ConfigError("lab_no_sink_token", model=bench.model.facts.name)
    return min(special) if begins is None else begins


def _random_words(bench: Bench, count: int) -> list[int]:
    """Different tokens, drawn evenly from those that are letters only."""
    vocabulary = np.random.default_rng(_SEED).permutation(bench.model.facts.vocab_size)
    special = bench.model.token_text.special_ids
    words: list[int] = []
    for token in vocabulary.tolist():
        raw = bench.model.token_text.raw(token)
        if token not in special and raw.strip().isalpha():
            words.append(token)
        if len(words) == count:
            break
    return words


def _read(bench: Bench, ids: list[int], shift: int) -> Generator[Tokens, None, Reading]:
    """Read one variant at full precision, watched, and again with sinks and a window only."""
    facts = bench.model.facts
    first_row = FROM_ROW + shift
    mass = PositionMass(
        n_layers=facts.n_layers, n_heads=facts.n_heads, positions=POSITIONS, from_row=first_row
    )
    session = bench.model.new_session(CacheConfig())
    session.observer = mass
    keep = yield from _perplexity(bench, ids, session, first_row)
    streaming = yield from _perplexity(bench, ids, bench.model.new_session(STREAMING), first_row)
    return Reading(ids, mass.mean(), keep, streaming)


def _perplexity(
    bench: Bench, ids: list[int], session: CacheSession, first_row: int
) -> Generator[Tokens, None, float]:
    """Perplexity of the tokens that rows from ``first_row`` on predict."""
    total = 0.0

    def take(start: int, logits: Tensor) -> None:
        nonlocal total
        total += float(nll_of_next(logits, ids, start)[max(0, first_row - start) :].double().sum())

    yield from bench.read(ids, session, take)
    session.reset()
    return math.exp(total / (len(ids) - 1 - first_row))


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    original = bench.text(0, settings["tokens"])
    variants = [UNCHANGED, *settings["changes"]]
    readings: dict[str, Reading] = {}
    for variant in variants:
        ids = variant_ids(bench, variant, original, settings["replaced"])
        readings[variant] = yield from _read(bench, ids, len(ids) - len(original))
    labels = {
        variant: [label.display for label in bench.model.labels(reading.ids[:POSITIONS], at_start=True)]
        for variant, reading in readings.items()
    }
    masses = np.stack([reading.weight.mean((0, 1)) for reading in readings.values()])
    return LabResult(
        experiment="meaning",
        settings=settings,
        model=bench.model.facts,
        text_sha256=bench.corpus.sha256,
        finding=_finding(variants, masses, settings),
        tables={"variants": _summary(readings, masses), "position_mass": _masses(labels, readings)},
        arrays={
            "position_mass": masses,
            "head_mass": np.stack([reading.weight[..., 0] for reading in readings.values()]),
        },
        marks={"variants": variants, "labels": labels, "from_row": FROM_ROW},
    )


def _summary(readings: dict[str, Reading], masses: NDArray[np.float64]) -> Table:
    rows: list[list[Cell]] = [
        [
            variant,
            float(mass[0]),
            float(mass.sum()),
            float(sink_rate(reading.weight)[0]),
            reading.ppl_keep,
            reading.ppl_streaming,
        ]
        for (variant, reading), mass in zip(readings.items(), masses, strict=True)
    ]
    return table(
        [
            ("variant", "text"),
            ("late_first", "share"),
            ("late_front", "share"),
            ("late_heads", "share"),
            ("ppl_keep", "ppl"),
            ("ppl_streaming", "ppl"),
        ],
        rows,
    )


def _masses(labels: dict[str, list[str]], readings: dict[str, Reading]) -> Table:
    rows: list[list[Cell]] = []
    for variant, reading in readings.items():
        weights, rates = reading.weight.mean((0, 1)), sink_rate(reading.weight)
        for position, label in enumerate(labels[variant]):
            rows.append([variant, position, label, float(weights[position]), float(rates[position])])
    return table(
        [
            ("variant", "text"),
            ("position", "count"),
            ("token", "text"),
            ("late_weight", "share"),
            ("late_heads", "share"),
        ],
        rows,
    )


def _finding(variants: list[str], masses: NDArray[np.float64], settings: dict[str, Any]) -> str:
    """Where the weight went, variant by variant; a model without a sink has nothing to move."""
    first, even = float(masses[0, 0]), even_weight(settings["tokens"], 0, FROM_ROW)
    said = {"row": FROM_ROW, "first": format_share(first), "even": format_share(even)}
    if first < TWICE * even:
        return text("lab.meaning.finding.none", **said)
    parts = "; ".join(
        text(
            "lab.meaning.finding.variant",
            variant=text(f"lab.meaning.variant.{variant}"),
            largest=format_share(float(mass.max())),
            total=format_share(float(mass.sum())),
        )
        for variant, mass in zip(variants[1:], masses[1:], strict=True)
    )
    stays = bool((masses[1:].sum(1) > masses[0].sum() / TWICE).all())
    return text(
        f"lab.meaning.finding.{'stays' if stays else 'moves'}", positions=POSITIONS, parts=parts, **said
    )


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    check_length(bench.model, False, settings["tokens"] + ("sink_token" in settings["changes"]), 0)
    if "sink_token" in settings["changes"]:
        _sink_token(bench)


def _work(settings: dict[str, Any]) -> int:
    tokens = (1 + len(settings["changes"])) * settings["tokens"] + ("sink_token" in settings["changes"])
    return int(2 * tokens)


EXPERIMENT = Experiment(
    info=ExperimentInfo(
        "meaning",
        (
            Control("changes", "choices", list(CHANGES), options=CHANGES),
            Control("replaced", "int", 4, low=1, high=POSITIONS),
            Control("tokens", "int", 512, low=FROM_ROW + 32, high=2048),
        ),
    ),
    work=_work,
    run=_run,
    check=_check,
)
