"""Which bits for which layer? Each layer's KL is measured at few bits, all others exact; bits are given out
so that their sum is least under a budget; and the result is scored on another text against the same bytes
everywhere.

The sum of the KLs of single layers stands for the KL of all together, which it is not: that is why the result
is measured. Arrays: ``kl`` ``(W, L)`` (``W`` tried widths), ``given_bits`` ``(L,)``. Marks: ``widths``,
``budget_bits``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvviz.catalogue import text
from kvviz.config import CacheConfig, LayerOverride, Middle
from kvviz.experiment import Control, ExperimentInfo, LabResult, table
from kvviz.lab.bench import Bench, Experiment, Experimenting
from kvviz.lab.key_or_value import measured_table
from kvviz.lab.yardstick import Measured, Yardstick, check_scoring
from kvviz.quant_config import QuantConfig
from kvviz.schemes import fitted
from kvviz.units import format_number

#: Widths that are tried; the widest one is taken to cost nothing (its KL is measured in ``quality``).
WIDTHS = (2, 3, 4)
WIDEST = 8
WINDOW_TOKENS, BLOCK_TOKENS = 64, 64
_MOST_LAYERS = 128

INFO = ExperimentInfo(
    "bits",
    (
        Control("budget", "choice", "3", options=("3", "4")),
        Control("layers", "int", 30, low=1, high=_MOST_LAYERS),
        Control("start", "int", 3000, low=0, high=1_000_000),
        Control("length", "int", 224, low=140, high=8192),
        Control("other_start", "int", 8000, low=0, high=1_000_000),
        Control("other_length", "int", 640, low=140, high=8192),
    ),
    group="quant",
    opens=True,
)


def give_bits(kl: Mapping[int, Sequence[float]], budget_bits: int) -> list[int]:
    """Widths by layer whose ``kl[width][layer]`` sum to the least, on average at most ``budget_bits``.

    Exact for sums of layers, by dynamic programming over the bits spent.
    """
    n_layers = len(next(iter(kl.values())))
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}  # bits spent -> least sum, widths
    for layer in range(n_layers):
        after: dict[int, tuple[float, list[int]]] = {}
        for spent, (total, widths) in best.items():
            for width, losses in kl.items():
                now, loss = spent + width, total + losses[layer]
                if now <= budget_bits * n_layers and (now not in after or loss < after[now][0]):
                    after[now] = (loss, [*widths, width])
        best = after
    return min(best.values(), key=lambda found: found[0])[1]


def pair(width: int, head_dim: int) -> tuple[QuantConfig, QuantConfig]:
    """Keys by channel, values by token; the same metadata at every width, so that bytes follow the width."""
    key, value = (QuantConfig.parse(f"int{width}:{axis}:g64:minmax") for axis in ("channel", "token"))
    return fitted(key, head_dim, BLOCK_TOKENS), fitted(value, head_dim, BLOCK_TOKENS)


def assigned(widths: Mapping[int, int], head_dim: int, rest: int | None) -> CacheConfig:
    """``widths`` by layer; every other layer at ``rest`` bits, or exact."""
    key, value = (QuantConfig(), QuantConfig()) if rest is None else pair(rest, head_dim)
    overrides = tuple(
        LayerOverride(layer, *pair(width, head_dim)) for layer, width in widths.items() if width != rest
    )
    return CacheConfig(
        4, WINDOW_TOKENS, Middle.QUANTIZE, BLOCK_TOKENS, key, value, overrides=overrides
    )  # fmt: skip


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    for start, length in (("start", "length"), ("other_start", "other_length")):
        skip = settings[length] // 2
        cache = assigned({}, bench.model.facts.head_dim, WIDEST)
        check_scoring(bench, settings[start], settings[length], skip, cache)


def _work(settings: dict[str, Any]) -> int:
    return int((1 + len(WIDTHS) * settings["layers"]) * settings["length"] + 3 * settings["other_length"])


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    facts, length = bench.model.facts, settings["length"]
    n_layers = min(int(settings["layers"]), facts.n_layers)
    full = Yardstick(bench.model, bench.text(settings["start"], length), length // 2)
    yield from full.read()
    kl: dict[int, list[float]] = {width: [] for width in WIDTHS}
    for layer in range(n_layers):
        for width, losses in kl.items():
            one = yield from full.measure(assigned({layer: width}, facts.head_dim, None))
            losses.append(one.kl)
    if missing := settings["layers"] - n_layers:
        yield missing * len(WIDTHS) * length  # layers that the model does not have
    budget = int(settings["budget"])
    widths = give_bits(kl | {WIDEST: [0.0] * n_layers}, budget)
    found = yield from _compared(bench, settings, widths, budget)
    return _result(bench, settings, kl, widths, found)


def _compared(bench: Bench, settings: dict[str, Any], widths: list[int], budget: int) -> Any:
    """The same bits everywhere, and the ones found, on the other text."""
    other, length, head_dim = settings["other_start"], settings["other_length"], bench.model.facts.head_dim
    full = Yardstick(bench.model, bench.text(other, length), length // 2)
    yield from full.read()
    even = yield from full.measure(assigned({}, head_dim, budget))
    given = yield from full.measure(assigned(dict(enumerate(widths)), head_dim, budget))
    return [even, given]


def _result(
    bench: Bench,
    settings: dict[str, Any],
    kl: dict[int, list[float]],
    widths: list[int],
    found: list[Measured],
) -> LabResult:
    labels = [text("lab.bits.configuration.even", n=settings["budget"]), text("lab.bits.configuration.given")]
    losses: NDArray[np.float64] = np.array([kl[width] for width in WIDTHS])
    rows = [
        [layer, *losses[:, layer].tolist(), width] for layer, width in enumerate(widths)
    ]  # fmt: skip
    columns: list[Any] = [
        ("layer", "count"),
        *((f"kl_{width}", "nats") for width in WIDTHS),
        ("given_bits", "count"),
    ]
    even, given = found
    verdict = "less" if given.kl < even.kl else "more"
    many = [str(layer) for layer, width in enumerate(widths) if width > int(settings["budget"])]
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=bench.model.facts,
        text_sha256=bench.corpus.sha256,
        finding=text(
            f"lab.bits.finding.{verdict}",
            even=format_number(even.kl), given=format_number(given.kl), n=settings["budget"],
            even_bits=f"{even.bits or 0:.2f}", given_bits=f"{given.bits or 0:.2f}",
            many=", ".join(many) or "–",
        ),
        tables={"bits": measured_table(labels, found), "bits-by-layer": table(columns, rows)},
        arrays={"kl": losses, "given_bits": np.array(widths)},
        marks={"widths": list(WIDTHS), "budget_bits": int(settings["budget"])},
        configurations={label: one.cache.to_dict() for label, one in zip(labels, found, strict=True)},
    )  # fmt: skip


EXPERIMENT = Experiment(info=INFO, work=_work, run=_run, check=_check)
