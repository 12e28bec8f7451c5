"""Does it matter that a block is quantized only once? The same keys and values of a real run, sealed block by
block, and quantized again as a whole at every flush.

Both ways get the exact blocks of one full-precision reading, so that nothing differs but the rule. The damage
is that to the rows which come next: they read the sinks exactly and everything else as one way left it.

Arrays (``S`` schemes, ``F`` flushes, ``L`` layers): ``key_once``, ``key_again``, ``value_once``,
``value_again`` ``(S, F)``, relative error of all that is stored after each flush; ``key_first_again`` and
``value_first_again`` ``(S, F)``, of the first block alone, which sealed once never changes
(``key_first_once``, ``value_first_once`` ``(S,)``); ``layers_once``, ``layers_again`` ``(S, L)``, keys
after the last flush; ``kl_once``, ``kl_again`` ``(S, P)``. Marks: ``schemes``, ``tokens`` (stored after
each flush), ``points`` (flushes at which KL was taken).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kvviz.cache import CacheSession
from kvviz.catalogue import text
from kvviz.config import CacheConfig, Middle
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, Table, table
from kvviz.lab.bench import Bench, Experiment, Experimenting, Tokens
from kvviz.lab.quant_bench import SIDES, check_text, read_exactly
from kvviz.quant import Requantized, SealedOnce
from kvviz.quant_config import QuantConfig
from kvviz.units import format_number, format_share

AXES = ("token", "channel", "head", "tensor")
MAPPINGS = ("absmax", "minmax")
#: rows read after the cache to see what became of the predictions
NEXT_ROWS = 32
#: the first block's error may waver by so much and still count as the same
_SAME = 0.02
_CHEAPER = 16  # restoring and quantizing a token costs so much less than reading it
_CACHE = CacheConfig(middle=Middle.QUANTIZE)

INFO = ExperimentInfo(
    "requantize",
    (
        Control("axes", "choices", list(AXES), options=AXES),
        Control("mappings", "choices", list(MAPPINGS), options=MAPPINGS),
        Control("bits", "choice", "4", options=("8", "4", "3", "2")),
        Control("flushes", "int", 16, low=2, high=120),
        Control("points", "int", 2, low=0, high=8),
        Control("start", "int", 3000, low=0, high=1_000_000),
    ),
    group="quant",
    held_tokens=lambda settings: _length(settings),
)


def _schemes(settings: dict[str, Any], head_dim: int) -> list[QuantConfig]:
    groups = {"token": f":g{head_dim}", "channel": f":g{_CACHE.block_size // 2}", "head": "", "tensor": ""}
    return [
        QuantConfig.parse(f"int{settings['bits']}:{axis}{groups[axis]}:{mapping}")
        for axis, mapping in itertools.product(settings["axes"], settings["mappings"])
    ]


def _length(settings: Mapping[str, Any]) -> int:
    return int(_CACHE.sink_size + settings["flushes"] * _CACHE.block_size + NEXT_ROWS)


def _points(settings: dict[str, Any]) -> list[int]:
    """Flushes, from 1, evenly up to the last one."""
    count, flushes = settings["points"], settings["flushes"]
    return sorted({math.ceil(flushes * (i + 1) / count) for i in range(count)})


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    check_text(bench, settings["start"], _length(settings), _CACHE)


def _work(settings: dict[str, Any]) -> int:
    schemes = len(settings["axes"]) * len(settings["mappings"])
    flushes, points = settings["flushes"], len(_points(settings))
    again = sum(_CACHE.block_size * (flush + 1) // _CHEAPER for flush in range(flushes))
    return _length(settings) + points * NEXT_ROWS + schemes * (again + 2 * points * NEXT_ROWS)


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    ids = bench.text(settings["start"], _length(settings))
    session = yield from read_exactly(bench, ids)
    exact = {side: torch.cat([layer.exact(side) for layer in session.layers]) for side in SIDES}
    session.reset()
    schemes = _schemes(settings, bench.model.facts.head_dim)
    full = {}
    for flush in _points(settings):
        full[flush] = _next_rows(bench, ids, exact, _stored(exact, flush))
        yield NEXT_ROWS
    found = []
    for config in schemes:
        found.append((yield from _one_scheme(bench, ids, exact, config, settings["flushes"], full)))
    arrays = {name: np.asarray([one[name] for one in found]) for name in found[0]}
    specs = [config.spec for config in schemes]
    marks = {
        "schemes": specs,
        "tokens": [_CACHE.block_size * (flush + 1) for flush in range(settings["flushes"])],
        "points": _points(settings),
    }
    main = _table(specs, arrays)
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=bench.model.facts,
        text_sha256=bench.corpus.sha256,
        finding=_finding(specs, arrays, settings),
        tables={"requantize": main, "requantize_steps": _steps(arrays, marks)},
        arrays=arrays,
        marks=marks,
    )


def _stored(exact: dict[str, Tensor], flush: int) -> dict[str, Tensor]:
    """What ``flush`` blocks behind the sinks hold, ``(L, H_kv, T, D)``."""
    first = _CACHE.sink_size
    return {side: x[:, :, first : first + flush * _CACHE.block_size] for side, x in exact.items()}


def _next_rows(
    bench: Bench, ids: Sequence[int], exact: dict[str, Tensor], stored: dict[str, Tensor]
) -> Tensor:
    """Log-probabilities ``(NEXT_ROWS, V)`` of the rows after exact sinks and ``stored``."""
    session: CacheSession = bench.model.new_session(CacheConfig())
    sinks, tokens = _CACHE.sink_size, _CACHE.sink_size + stored["key"].shape[2]
    try:
        session.begin(tokens)
        for layer in range(session.n_layers):
            both = (torch.cat([exact[s][layer, :, :sinks], stored[s][layer]], 1)[None] for s in SIDES)
            session.append(layer, *both)
        session.finish()
        logits = bench.model.forward(ids[tokens : tokens + NEXT_ROWS], session, last_only=False)
    finally:
        session.reset()
    return torch.log_softmax(logits, dim=-1)


def _one_scheme(
    bench: Bench,
    ids: Sequence[int],
    exact: dict[str, Tensor],
    config: QuantConfig,
    flushes: int,
    full: dict[int, Tensor],
) -> Generator[Tokens, None, dict[str, Any]]:
    """Both ways side by side, flush by flush."""
    block = _CACHE.block_size
    once = {side: SealedOnce(config, block_size=block) for side in SIDES}
    again = {side: Requantized(config, block_size=block) for side in SIDES}
    names = [f"{s}_{kind}" for s in SIDES for kind in ("once", "again", "first_again")]
    series: dict[str, Any] = {name: [] for name in [*names, "kl_once", "kl_again"]}
    for flush in range(1, flushes + 1):
        stored = _stored(exact, flush)
        newest = {side: x[:, :, -block:] for side, x in stored.items()}
        with torch.inference_mode():
            now = {side: once[side].add(newest[side]) for side in SIDES}
            later = {side: again[side].add(newest[side]) for side in SIDES}
        for side in SIDES:
            series[f"{side}_once"].append(_error(stored[side], now[side]))
            series[f"{side}_again"].append(_error(stored[side], later[side]))
            first = (stored[side][:, :, :block], later[side][:, :, :block])
            series[f"{side}_first_again"].append(_error(*first))
        yield block * flush // _CHEAPER
        if flush in full:
            series["kl_once"].append(_kl(full[flush], _next_rows(bench, ids, exact, now)))
            yield NEXT_ROWS
            if all(torch.equal(now[side], later[side]) for side in SIDES):
                series["kl_again"].append(series["kl_once"][-1])
            else:
                series["kl_again"].append(_kl(full[flush], _next_rows(bench, ids, exact, later)))
            yield NEXT_ROWS
    series |= {f"{side}_first_once": series[f"{side}_once"][0] for side in SIDES}
    series["layers_once"] = _by_layer(stored["key"], now["key"])
    series["layers_again"] = _by_layer(stored["key"], later["key"])
    return series


def _by_layer(exact: Tensor, restored: Tensor) -> list[float]:
    return [_error(x, y) for x, y in zip(exact, restored, strict=True)]


def _error(exact: Tensor, restored: Tensor) -> float:
    wide = exact.double()
    error, signal = (wide - restored.double()).square().sum(), wide.square().sum()
    return math.sqrt(float(error) / float(signal))


def _kl(full: Tensor, measured: Tensor) -> float:
    """Mean over rows of ``sum p_full (log p_full - log p)`` in nats."""
    return float((full.exp() * (full - measured)).sum(-1).double().mean())


def _growth(arrays: dict[str, NDArray[Any]], side: str) -> NDArray[np.float64]:
    """``(S,)``: the first block's error after the last flush over that of sealing it once."""
    ratio: NDArray[np.float64] = arrays[f"{side}_first_again"][:, -1] / np.maximum(
        arrays[f"{side}_first_once"], np.finfo(float).tiny
    )
    return ratio


def _table(specs: list[str], arrays: dict[str, NDArray[Any]]) -> Table:
    rows: list[list[Cell]] = []
    has_kl = arrays["kl_once"].shape[1] > 0
    growth = {side: _growth(arrays, side) for side in SIDES}
    for place, spec in enumerate(specs):
        numbers = [float(arrays[name][place, -1]) for name in ("key_once", "key_again")]
        values = [float(arrays[name][place, -1]) for name in ("value_once", "value_again")]
        kl = [float(arrays[f"kl_{kind}"][place, -1]) if has_kl else None for kind in ("once", "again")]
        rows.append(
            [spec, *numbers, float(growth["key"][place]), *values, float(growth["value"][place]), *kl]
        )
    return table(
        [
            ("scheme", "text"), ("key_once", "share"), ("key_again", "share"), ("key_growth", "norm"),
            ("value_once", "share"), ("value_again", "share"), ("value_growth", "norm"),
            ("kl_once", "nats"), ("kl_again", "nats"),
        ],
        rows,
    )  # fmt: skip


def _steps(arrays: dict[str, NDArray[Any]], marks: dict[str, Any]) -> Table:
    rows: list[list[Cell]] = []
    for (place, spec), (flush, tokens) in itertools.product(
        enumerate(marks["schemes"]), enumerate(marks["tokens"])
    ):
        measured = marks["points"].index(flush + 1) if flush + 1 in marks["points"] else None
        kl = [
            None if measured is None else float(arrays[f"kl_{kind}"][place, measured])
            for kind in ("once", "again")
        ]
        errors = [float(arrays[name][place, flush]) for name in ("key_once", "key_again")]
        first = [float(arrays["key_first_once"][place]), float(arrays["key_first_again"][place, flush])]
        rows.append([spec, flush + 1, tokens, *errors, *first, *kl])
    return table(
        [
            ("scheme", "text"), ("flush", "count"), ("stored_tokens", "count"), ("key_once", "share"),
            ("key_again", "share"), ("first_once", "share"), ("first_again", "share"), ("kl_once", "nats"),
            ("kl_again", "nats"),
        ],
        rows,
    )  # fmt: skip


def _finding(specs: list[str], arrays: dict[str, NDArray[Any]], settings: dict[str, Any]) -> str:
    growth = _growth(arrays, "key")
    same = [spec for spec, ratio in zip(specs, growth, strict=True) if abs(ratio - 1) <= _SAME]
    grown = [place for place in np.argsort(-growth).tolist() if growth[place] > 1 + _SAME]
    sentences = []
    if grown:
        worst = grown[0]
        sentences.append(
            text(
                "lab.requantize.finding.grows",
                spec=specs[worst],
                flushes=settings["flushes"],
                once=format_share(float(arrays["key_first_once"][worst])),
                again=format_share(float(arrays["key_first_again"][worst, -1])),
                times=format_number(float(growth[worst])),
                count=len(grown),
                total=len(specs),
            )
        )
        if arrays["kl_once"].shape[1]:
            kl = [format_number(float(arrays[f"kl_{kind}"][worst, -1])) for kind in ("once", "again")]
            sentences.append(text("lab.requantize.finding.kl", rows=NEXT_ROWS, once=kl[0], again=kl[1]))
    if same:
        sentences.append(text("lab.requantize.finding.same", specs=", ".join(same)))
    return " ".join(sentences) or text("lab.requantize.finding.shrinks")


EXPERIMENT = Experiment(info=INFO, work=_work, run=_run, check=_check)
