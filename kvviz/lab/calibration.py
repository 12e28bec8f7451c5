"""What if the scales were learnt on another kind of text? Static scales from a short chat, run on code or on
mathematics; beside them matched static scales, dynamic ones, and a guard that stores exactly what falls
outside.

Clipping is counted in the very run that is scored: its exact keys and values, as the quantizer met them,
against the range of the scales it used.

Arrays (``C`` configurations, ``L`` layers): ``clip_key`` and ``clip_value`` ``(C, L)``: share of sealed
values outside the calibrated range which no guard stores, NaN for dynamic scales. Marks:
``configurations``, ``kinds``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvviz.cache import CacheSession
from kvviz.cache.calibrate import calibration_of
from kvviz.catalogue import ASSETS_DIR, text
from kvviz.config import CacheConfig, Middle
from kvviz.engine import Corpus, ScoreResult, load_text, scoring
from kvviz.errors import ConfigError
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, Table, table
from kvviz.lab.bench import Bench, Experiment, Experimenting, Tokens
from kvviz.lab.quant_bench import SIDES, check_text, read_exactly
from kvviz.lab.twin import OutputSession, TwinSession
from kvviz.quant import Calibration, outside, unguarded
from kvviz.quant_config import QuantConfig
from kvviz.units import format_bits, format_number, format_share

DOMAINS = ("chat", "code", "math")
#: dynamic scales, static ones learnt on the same kind of text, on another kind, and these with a guard
KINDS = ("dynamic", "matched", "mismatched", "guarded")
_GUARD_PARTS = ("outliers", "outlier_places")

INFO = ExperimentInfo(
    "calibration",
    (
        Control("learn_on", "choice", "chat", options=DOMAINS),
        Control("run_on", "choice", "math", options=DOMAINS),
        Control("key", "quantizer", "int4:channel:g32:minmax"),
        Control("value", "quantizer", "int4:token:g64:minmax"),
        Control("guard", "choice", "1", options=("0.5", "1", "2", "5")),
        Control("learn_tokens", "int", 384, low=68, high=512),
        Control("length", "int", 768, low=197, high=2048),
    ),
    group="quant",
)


class _Measured(NamedTuple):
    """One configuration: its score, clipped shares ``(2, L)``, and bytes of its calibration."""

    score: ScoreResult
    clipped: NDArray[np.float64]
    calibration_bytes: int


def domain_text(name: str) -> Corpus:
    """One of the built-in texts, by the kind of text it is."""
    return load_text(str(ASSETS_DIR / "texts" / f"{name}.txt"))


def _cache(settings: dict[str, Any], kind: str) -> CacheConfig:
    """The chosen pair, with static scales and a guard as ``kind`` asks."""
    static = kind != "dynamic"
    guard = float(settings["guard"]) if kind == "guarded" else 0.0

    def side(name: str) -> QuantConfig:
        config = QuantConfig.parse(settings[name])
        if config.is_none:
            return config
        return dataclasses.replace(config, static=static, guard_percent=guard)

    return CacheConfig(middle=Middle.QUANTIZE, key=side("key"), value=side("value"))


def _tokens(bench: Bench, name: str, start: int, count: int) -> list[int]:
    ids = bench.model.encode(domain_text(name).text, False)
    if start + count > len(ids):
        raise ConfigError("text_slice", start=start, stop=start + count, tokens=len(ids))
    return ids[start : start + count]


def _run_ids(bench: Bench, settings: dict[str, Any]) -> list[int]:
    """What is run lies behind what the matched calibration reads: no text is met twice."""
    return _tokens(bench, settings["run_on"], settings["learn_tokens"], settings["length"])


def _skip(cache: CacheConfig) -> int:
    """The first row that sees a sealed block."""
    return cache.sink_size + cache.window_size + cache.block_size - 1


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    if settings["learn_on"] == settings["run_on"]:
        raise ConfigError("lab_same_domain", domain=settings["run_on"])
    caches = [_cache(settings, kind) for kind in KINDS]
    if caches[0].key.is_none and caches[0].value.is_none:
        raise ConfigError("lab_none_coded")
    for cache in caches:
        bench.model.check(cache, calibrated=True)
    check_text(bench, 0, max(settings["length"], settings["learn_tokens"]), CacheConfig())
    _tokens(bench, settings["learn_on"], 0, settings["learn_tokens"])
    _run_ids(bench, settings)


def _work(settings: dict[str, Any]) -> int:
    return int(2 * settings["learn_tokens"] + 2 * len(KINDS) * settings["length"])


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    ids = _run_ids(bench, settings)
    learnt: dict[str, CacheSession] = {}
    found = {}
    try:
        for domain in (settings["run_on"], settings["learn_on"]):
            text_read = _tokens(bench, domain, 0, settings["learn_tokens"])
            learnt[domain] = yield from read_exactly(bench, text_read)
        for kind in KINDS:
            cache = _cache(settings, kind)
            domain = settings["run_on"] if kind in ("dynamic", "matched") else settings["learn_on"]
            calibration = calibration_of(learnt[domain], cache)
            found[kind] = yield from _measure(bench, ids, cache, calibration)
    finally:
        for session in learnt.values():
            session.reset()
    clipped = np.stack([one.clipped for one in found.values()])  # (C, 2, L)
    names = [_name(kind, settings) for kind in KINDS]
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=bench.model.facts,
        text_sha256=domain_text(settings["run_on"]).sha256,
        finding=_finding(found, settings),
        tables={"calibration": _table(found, names), "calibration_layers": _layers(clipped, names)},
        arrays={"clip_key": clipped[:, 0], "clip_value": clipped[:, 1]},
        marks={"configurations": names, "kinds": list(KINDS)},
    )


def _name(kind: str, settings: dict[str, Any]) -> str:
    domain = settings["run_on"] if kind == "matched" else settings["learn_on"]
    return text(
        f"lab.calibration.configuration.{kind}",
        domain=text(f"lab.calibration.control.learn_on.option.{domain}"),
        percent=settings["guard"],
    )


def _measure(
    bench: Bench, ids: list[int], cache: CacheConfig, calibration: Calibration
) -> Generator[Tokens, None, _Measured]:
    """Score one configuration and count what was clipped in it."""
    clipped = np.full((len(SIDES), bench.model.facts.n_layers), np.nan)

    def watch(full: CacheSession, tested: CacheSession) -> None:
        assert isinstance(tested, TwinSession)
        if tested.seen_tokens == len(ids):
            _count_clipped(tested, cache, calibration, clipped)

    reading = scoring(
        bench.model, ids, cache, skip=_skip(cache), calibration=calibration, full_kind=OutputSession,
        kind=TwinSession, watch=watch,
    )  # fmt: skip
    done = 0
    try:
        while True:
            read = next(reading)
            yield 2 * (read - done)
            done = read
    except StopIteration as finished:
        return _Measured(finished.value, clipped, calibration.n_bytes)
    finally:
        reading.close()


def _count_clipped(
    session: TwinSession, cache: CacheConfig, calibration: Calibration, clipped: NDArray[np.float64]
) -> None:
    """Shares ``(2, L)`` of sealed values that were clipped, into ``clipped``; dynamic sides stay NaN."""
    for layer in range(session.n_layers):
        for place, side in enumerate(SIDES):
            config, learnt = cache.side(layer, side), calibration.side(layer, side)
            if not config.static or learnt is None:
                continue
            met = session.exact_sealed(layer, side)
            if config.prerotary:
                met = session.key_turn.undo(met, cache.sink_size)
            mask = outside(met, config, learnt, block_size=cache.block_size)
            left = unguarded(mask, config, block_size=cache.block_size).sum()
            clipped[place, layer] = float(left) / mask.numel()


def _guard_bytes(score: ScoreResult) -> int:
    return sum(
        count
        for tiers in score.memory.used.values()
        for parts in tiers.values()
        for part, count in parts.items()
        if part in _GUARD_PARTS
    )


def _table(found: dict[str, _Measured], names: list[str]) -> Table:
    rows: list[list[Cell]] = []
    for name, one in zip(names, found.values(), strict=True):
        score = one.score
        shares = [_mean(one.clipped[side]) for side in (0, 1)]
        worst = None if np.isnan(one.clipped).all() else float(np.nanmax(one.clipped))
        row: list[Cell] = [name, *shares, worst, score.ppl, score.kl, score.top1]
        row += [
            score.memory.effective_bits,
            one.calibration_bytes,
            _guard_bytes(score),
            score.memory.used_bytes,
        ]
        rows.append(row)
    return table(
        [
            ("configuration", "text"), ("clipped_key", "share"), ("clipped_value", "share"),
            ("clipped_worst", "share"), ("ppl", "ppl"), ("kl", "nats"), ("top1", "share"),
            ("pair_bits", "norm"), ("calibration_bytes", "bytes"), ("guard_bytes", "bytes"),
            ("cache_bytes", "bytes"),
        ],
        rows,
    )  # fmt: skip


def _mean(clipped: NDArray[np.float64]) -> float | None:
    return None if np.isnan(clipped).all() else float(np.nanmean(clipped))


def _layers(clipped: NDArray[np.float64], names: list[str]) -> Table:
    rows: list[list[Cell]] = []
    for place, name in enumerate(names):
        if np.isnan(clipped[place]).all():
            continue
        for layer in range(clipped.shape[2]):
            shares = [None if np.isnan(share) else float(share) for share in clipped[place, :, layer]]
            rows.append([name, layer, *shares])
    columns = [
        ("configuration", "text"),
        ("layer", "count"),
        ("clipped_key", "share"),
        ("clipped_value", "share"),
    ]
    return table(columns, rows)  # type: ignore[arg-type]


def _finding(found: dict[str, _Measured], settings: dict[str, Any]) -> str:
    words: dict[str, str] = {f"kl_{kind}": format_number(one.score.kl) for kind, one in found.items()} | {
        f"ppl_{kind}": f"{one.score.ppl:.2f}" for kind, one in found.items()
    }
    off, matched = found["mismatched"], found["matched"]
    bits = found["guarded"].score.memory.effective_bits, off.score.memory.effective_bits
    return text(
        "lab.calibration.finding.said",
        learn=text(f"lab.calibration.control.learn_on.option.{settings['learn_on']}"),
        run=text(f"lab.calibration.control.run_on.option.{settings['run_on']}"),
        key=format_share(_mean(off.clipped[0])),
        value=format_share(_mean(off.clipped[1])),
        key_matched=format_share(_mean(matched.clipped[0])),
        value_matched=format_share(_mean(matched.clipped[1])),
        percent=settings["guard"],
        more=format_bits((bits[0] or 0.0) - (bits[1] or 0.0)),
        ppl_full=f"{off.score.ppl_full:.2f}",
        **words,
    )


EXPERIMENT = Experiment(info=INFO, work=_work, run=_run, check=_check)
