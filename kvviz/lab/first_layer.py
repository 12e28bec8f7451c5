"""Which layer breaks first? One layer's middle is quantized at a time, all others stay exact.

Arrays ``(L,)``: ``kl``; ``key_error`` and ``value_error`` (relative, of what that layer
sealed; NaN for a side that stays exact).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.catalogue import text
from kvviz.config import CacheConfig, LayerOverride, Middle
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, table
from kvviz.lab.bench import Bench, Experiment, Experimenting
from kvviz.lab.yardstick import Measured, Yardstick, check_scoring
from kvviz.quant_config import QuantConfig
from kvviz.schemes import fitted
from kvviz.units import format_number

SIDES = ("both", "key", "value")
WINDOW_TOKENS = 64
#: How many layers the finding names.
_TOLD_AT_MOST = 3

INFO = ExperimentInfo(
    "first-layer",
    (
        Control("key", "quantizer", "int2:channel:g32:minmax"),
        Control("value", "quantizer", "int2:token:g32:minmax"),
        Control("side", "choice", "both", options=SIDES),
        Control("layers", "int", 30, low=1, high=128),
        Control("start", "int", 3000, low=0, high=1_000_000),
        Control("length", "int", 448, low=4, high=8192),
        Control("skip", "int", 192, low=0, high=8190),
    ),
    group="quant",
)


def one_layer(layer: int, key: QuantConfig, value: QuantConfig) -> CacheConfig:
    """Blocks are sealed in every layer, through these quantizers in one of them alone."""
    return CacheConfig(
        4, WINDOW_TOKENS, Middle.QUANTIZE, 64, overrides=(LayerOverride(layer, key, value),)
    )  # fmt: skip


def _sides(bench: Bench, settings: dict[str, Any]) -> tuple[QuantConfig, QuantConfig]:
    exact, head_dim = QuantConfig(), bench.model.facts.head_dim
    key, value = (fitted(QuantConfig.parse(settings[side]), head_dim, 64) for side in ("key", "value"))
    return key if settings["side"] != "value" else exact, value if settings["side"] != "key" else exact


def _layers(bench: Bench, settings: dict[str, Any]) -> int:
    return min(int(settings["layers"]), bench.model.facts.n_layers)


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    cache = one_layer(0, *_sides(bench, settings))
    bench.model.check(cache)
    check_scoring(bench, settings["start"], settings["length"], settings["skip"], cache)


def _work(settings: dict[str, Any]) -> int:
    return int((1 + settings["layers"]) * settings["length"])


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    full = Yardstick(bench.model, bench.text(settings["start"], settings["length"]), settings["skip"])
    yield from full.read()
    n_layers, found = _layers(bench, settings), []
    for layer in range(n_layers):
        found.append((yield from full.measure(one_layer(layer, *_sides(bench, settings)))))
    if missing := settings["layers"] - n_layers:
        yield missing * settings["length"]  # layers that the model does not have
    return _result(bench, settings, found)


def _result(bench: Bench, settings: dict[str, Any], found: list[Measured]) -> LabResult:
    # of the quantized layer alone: the exact blocks of all others would only thin it out
    errors = {
        side: [
            one.side_error(side, layer) if settings["side"] in ("both", side) else None
            for layer, one in enumerate(found)
        ]
        for side in ("key", "value")
    }
    rows: list[list[Cell]] = [
        [layer, one.kl, one.ppl, one.ppl_change, one.top1, key, value]
        for layer, (one, key, value) in enumerate(zip(found, errors["key"], errors["value"], strict=True))
    ]
    columns: list[Any] = [
        ("layer", "count"), ("kl", "nats"), ("ppl", "ppl"), ("pair_ppl_change", "share"), ("top1", "share"),
        ("key_error", "share"), ("value_error", "share"),
    ]  # fmt: skip
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=bench.model.facts,
        text_sha256=bench.corpus.sha256,
        finding=_finding(found),
        tables={"first-layer": table(columns, rows)},
        arrays={"kl": np.array([one.kl for one in found])}
        | {f"{side}_error": np.array(values, dtype=np.float64) for side, values in errors.items()},
    )


def _finding(found: list[Measured]) -> str:
    """The layers that cost most, and their share of the sum."""
    kl = np.array([one.kl for one in found])
    order = np.argsort(-kl, kind="stable")[:_TOLD_AT_MOST].tolist()
    worst = ", ".join(
        text("lab.first-layer.finding.one", layer=layer, kl=format_number(float(kl[layer])))
        for layer in order
    )
    total = float(kl.sum())
    share = f"{100 * float(kl[order].sum()) / total:.0f} %" if total > 0 else "0 %"
    return text(
        "lab.first-layer.finding.said",
        worst=worst, share=share, median=format_number(float(np.median(kl))), layers=len(found),
    )  # fmt: skip


EXPERIMENT = Experiment(info=INFO, work=_work, run=_run, check=_check)
