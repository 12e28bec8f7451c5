"""What does the quantizer meet, and what does it make of it? One head's keys or values, value by value.

Keys and values are those of a full-precision run. Knows no drawing.

Arrays of the result (``t`` tokens of the block shown, ``D`` channels, all of one KV head), ``(t, D)``:
``value`` and ``restored``, as the cache holds it and as it is read back; ``given`` and ``decoded``, what
the code was computed from and what it stands for, all float32; ``code``, and ``kept``, 1 where the value is
stored as it is, both uint8. Over all blocks read: ``channel_max`` ``(2, D)``, the largest magnitude as held
and as coded; ``channel_error`` and ``channel_relative`` ``(D,)``; ``bin_edges (n + 1,)`` and ``bin_counts
(n,)`` of values in steps of their own group; ``levels (m,)``, ``level_counts (m,)``: what codes stand for
there, and how many values took each. Marks: ``first``, position of the first token shown; ``outliers``, two
lists of channels, as held and as coded; ``medians`` of ``channel_max``; ``changed``, False when what is
coded is what is held.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kvviz.cache import CacheSession
from kvviz.cache.calibrate import sealable
from kvviz.catalogue import text
from kvviz.config import CacheConfig, Middle
from kvviz.errors import ConfigError
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, Table, table
from kvviz.lab.bench import Bench, Experiment, Experimenting
from kvviz.lab.quant_bench import SIDES, check_place, check_text, read_exactly, relative_error, snr_db
from kvviz.quant import Inspected, inspect
from kvviz.quant_config import QuantConfig
from kvviz.units import format_number, format_share

#: a channel is an outlier when its largest magnitude is more than so many times that of the median channel
OUTLIER_TIMES = 6
#: the most values of a block that are shown one by one
MOST_SHOWN = 4096
_BINS = 200

INFO = ExperimentInfo(
    "values",
    (
        Control("layer", "int", 18, low=0, high=999),
        Control("head", "int", 2, low=0, high=999),
        Control("side", "choice", "key", options=SIDES),
        Control("quantizer", "quantizer", "int4:token:g64:absmax"),
        Control("block", "int", 0, low=0, high=100_000),
        Control("start", "int", 3000, low=0, high=1_000_000),
        Control("length", "int", 1024, low=16, high=8192),
    ),
    group="quant",
)


def _cache(settings: dict[str, Any]) -> CacheConfig:
    """The default cache with the chosen quantizer on the chosen side."""
    config = QuantConfig.parse(settings["quantizer"])
    if settings["side"] == "key":
        return CacheConfig(middle=Middle.QUANTIZE, key=config)
    return CacheConfig(middle=Middle.QUANTIZE, value=config)


def _blocks(settings: dict[str, Any]) -> int:
    cache = _cache(settings)
    return int((settings["length"] - cache.sink_size) // cache.block_size)


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    facts = bench.model.facts
    if QuantConfig.parse(settings["quantizer"]).is_none:
        raise ConfigError("lab_none_coded")
    check_text(bench, settings["start"], settings["length"], _cache(settings))
    check_place("layer", settings["layer"], facts.n_layers)
    check_place("head", settings["head"], facts.n_kv_heads)
    check_place("block", settings["block"], _blocks(settings))


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    ids = bench.text(settings["start"], settings["length"])
    session = yield from read_exactly(bench, ids)
    try:
        held, found = _inspected(session, settings)
    finally:
        session.reset()
    head = settings["head"]
    held, picked = held[0, head].cpu(), _one_head(found, head)
    arrays, marks = _arrays(held, picked, settings)
    channels = _channels(arrays, marks)
    summary = _summary(held, picked, arrays, marks)
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=bench.model.facts,
        text_sha256=bench.corpus.sha256,
        finding=_finding(summary, arrays, marks, settings),
        tables={"values_summary": summary, "values_channels": channels},
        arrays=arrays,
        marks=marks,
    )


def _inspected(session: CacheSession, settings: dict[str, Any]) -> tuple[Tensor, Inspected]:
    """All whole blocks ``(1, H_kv, T, D)`` of the side as the cache holds them, and what is made of them;
    ``restored`` is turned back where keys were unrotated."""
    cache, side, layer = _cache(settings), settings["side"], settings["layer"]
    plain = CacheConfig(middle=Middle.QUANTIZE)
    held = sealable(session, plain, layer, side)
    config = cache.side(layer, side)
    found = inspect(sealable(session, cache, layer, side), config, block_size=cache.block_size)
    if config.prerotary:
        turned = session.key_turn.redo(found.restored, cache.sink_size).to(held.dtype)
        found = dataclasses.replace(found, restored=turned)
    return held, found


def _one_head(found: Inspected, head: int) -> Inspected:
    """Of one head, each ``(T, D)``, numbers in float64, on the CPU."""
    names = [field.name for field in dataclasses.fields(found) if field.name != "levels"]
    one = {name: getattr(found, name)[0, head].cpu() for name in names}
    wide = {name: values if name in ("codes", "kept") else values.double() for name, values in one.items()}
    return Inspected(levels=found.levels.double().cpu(), **wide)


def _arrays(
    held: Tensor, picked: Inspected, settings: dict[str, Any]
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    cache, head_dim = _cache(settings), held.shape[-1]
    config = QuantConfig.parse(settings["quantizer"])
    first = settings["block"] * cache.block_size
    shown = slice(first, first + min(cache.block_size, max(1, MOST_SHOWN // head_dim)))
    wide = held.double()
    error = (picked.restored - wide).abs()
    maxima = np.stack([_peak(wide), _peak(picked.given)])
    medians = [float(np.median(row)) for row in maxima]
    signal, lost = wide.square().sum(0), error.square().sum(0)
    arrays: dict[str, NDArray[Any]] = {
        "value": wide[shown].float().numpy(),
        "restored": picked.restored[shown].float().numpy(),
        "given": picked.given[shown].float().numpy(),
        "decoded": picked.decoded[shown].float().numpy(),
        "code": picked.codes[shown].numpy(),
        "kept": picked.kept[shown].to(torch.uint8).numpy(),
        "channel_max": maxima,
        "channel_error": error.amax(0).numpy(),
        "channel_relative": (lost / signal.clamp_min(torch.finfo(torch.float64).tiny)).sqrt().numpy(),
        **_histogram(picked),
    }
    marks = {
        "first": cache.sink_size + first,
        "outliers": [_outliers(row) for row in maxima],
        "medians": medians,
        "changed": config.hadamard or config.prerotary,
    }
    return arrays, marks


def _peak(x: Tensor) -> NDArray[np.float64]:
    peak: NDArray[np.float64] = x.abs().amax(0).numpy()
    return peak


def _outliers(maxima: NDArray[np.float64]) -> list[int]:
    """Channels by the rule of :data:`OUTLIER_TIMES`."""
    return [int(channel) for channel in np.flatnonzero(maxima > OUTLIER_TIMES * np.median(maxima))]


def _histogram(picked: Inspected) -> dict[str, NDArray[Any]]:
    coded, levels = picked.steps[~picked.kept].numpy(), picked.levels.numpy()
    low, high = min(levels[0], coded.min(initial=0)), max(levels[-1], coded.max(initial=0))
    counts, edges = np.histogram(coded, bins=_BINS, range=(low, high))
    nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, coded)
    taken = np.bincount(nearest, minlength=len(levels))
    return {"bin_edges": edges, "bin_counts": counts, "levels": levels, "level_counts": taken}


def _channels(arrays: dict[str, NDArray[Any]], marks: dict[str, Any]) -> Table:
    held, coded = arrays["channel_max"]
    rows: list[list[Cell]] = [
        [
            channel,
            float(held[channel]),
            float(held[channel] / marks["medians"][0]) if marks["medians"][0] else None,
            channel in marks["outliers"][0],
            float(coded[channel]),
            channel in marks["outliers"][1],
            float(arrays["channel_error"][channel]),
            float(arrays["channel_relative"][channel]),
        ]
        for channel in range(held.shape[0])
    ]
    return table(
        [
            ("head_channel", "count"), ("max_held", "norm"), ("over_median", "norm"), ("is_outlier", "text"),
            ("max_coded", "norm"), ("is_outlier_coded", "text"), ("max_error", "norm"),
            ("relative_error", "share"),
        ],
        rows,
    )  # fmt: skip


def _summary(
    held: Tensor, picked: Inspected, arrays: dict[str, NDArray[Any]], marks: dict[str, Any]
) -> Table:
    """All channels, the outlier channels, and the others: so that no large channel hides what became of the
    small ones."""
    outliers = marks["outliers"][0]
    others = [channel for channel in range(held.shape[1]) if channel not in outliers]
    rows: list[list[Cell]] = []
    for name, channels in (("all", [*range(held.shape[1])]), ("outliers", outliers), ("others", others)):
        if not channels or (name == "others" and not outliers):
            continue
        exact, back = held[:, channels], picked.restored[:, channels]
        relative = relative_error(exact, back)
        rows.append(
            [
                text(f"lab.values.channels.{name}"),
                len(channels),
                float(arrays["channel_max"][0][channels].max()),
                relative,
                snr_db(relative),
                float(arrays["channel_error"][channels].max()),
            ]
        )
    return table(
        [
            ("channels", "text"), ("n_channels", "count"), ("max_held", "norm"), ("relative_error", "share"),
            ("snr", "norm"), ("max_error", "norm"),
        ],
        rows,
    )  # fmt: skip


def _finding(
    summary: Table, arrays: dict[str, NDArray[Any]], marks: dict[str, Any], settings: dict[str, Any]
) -> str:
    (held, coded), errors = arrays["channel_max"], summary.column("relative_error")
    top = int(held.argmax())
    values: dict[str, Any] = {
        "layer": settings["layer"],
        "head": settings["head"],
        "side": text(f"lab.values.control.side.option.{settings['side']}"),
        "spec": settings["quantizer"],
        "channel": top,
        "top": format_number(float(held[top])),
        "median": format_number(marks["medians"][0]),
        "count": len(marks["outliers"][0]),
        "times": OUTLIER_TIMES,
        "error": format_share(_number(errors[0])),
        "max_error": format_number(float(arrays["channel_error"].max())),
        "worst": int(arrays["channel_error"].argmax()),
    }
    if marks["outliers"][0]:
        found = text("lab.values.finding.outliers", others=format_share(_number(errors[-1])), **values)
    else:
        found = text("lab.values.finding.even", **values)
    if marks["changed"]:
        found += " " + text(
            "lab.values.finding.changed",
            top=format_number(float(coded.max())),
            median=format_number(marks["medians"][1]),
            count=len(marks["outliers"][1]),
        )
    return found


def _number(cell: Cell) -> float:
    return float(cell) if isinstance(cell, (int, float)) else math.nan


EXPERIMENT = Experiment(info=INFO, work=lambda settings: int(settings["length"]), run=_run, check=_check)
