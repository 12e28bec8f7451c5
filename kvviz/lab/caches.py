"""What does each cache hold, and what does it cost? Named caches on the same forced tokens: bytes that really
exist, by place, and what the words lose.

Marks: ``labels`` (how the caches are called), ``names`` (of :data:`CACHES`), ``bytes`` (the ledger's trees,
one a cache), ``sealed_numbers`` (K and V numbers in sealed blocks, one a cache), ``full_bytes`` and
``full_16bit_bytes`` (computed: ``2 * L * H_kv * D * T * bytes``).
"""

from __future__ import annotations

from typing import Any

from kvviz.catalogue import text
from kvviz.config import CacheConfig, Middle, Offload
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, table
from kvviz.lab.bench import Bench, Experiment, Experimenting
from kvviz.lab.quant_bench import check_text
from kvviz.lab.yardstick import Measured, Yardstick
from kvviz.quant_config import QuantConfig
from kvviz.schemes import fitted
from kvviz.units import format_bytes

SINKS, BLOCK_TOKENS = 4, 64
#: name -> keys, values; what is sealed, and with which quantizers
SEALED = {
    "k8v8": ("int8:token:g64:absmax", "int8:token:g64:absmax"),
    "k8v4": ("int8:token:g64:absmax", "int4:token:g64:absmax"),
    "k8v4-host": ("int8:token:g64:absmax", "int4:token:g64:absmax"),
    "k4v8": ("int4:token:g64:absmax", "int8:token:g64:absmax"),
    "int4-scale": ("int4:token:g64:absmax", "int4:token:g64:absmax"),
    "int4-minmax": ("int4:token:g64:minmax", "int4:token:g64:minmax"),
    "int4-g32": ("int4:token:g32:minmax", "int4:token:g32:minmax"),
    "int4-g16-m32": ("int4:token:g16:minmax:m32", "int4:token:g16:minmax:m32"),
    "kivi-4": ("int4:channel:g64:minmax", "int4:token:g64:minmax"),
    "kivi-2": ("int2:channel:g32:minmax", "int2:token:g32:minmax"),
}
CACHES = ("full", "window", "sinks", *SEALED)

INFO = ExperimentInfo(
    "caches",
    (
        Control("caches", "choices", ["full", "sinks", "k8v4", "kivi-2"], options=CACHES),
        Control("window", "int", 64, low=1, high=4096),
        Control("kept", "int", 256, low=SINKS + 1, high=8192),
        Control("start", "int", 3000, low=0, high=1_000_000),
        Control("length", "int", 768, low=4, high=8192),
        Control("skip", "int", 320, low=0, high=8190),
    ),
    group="lesson",
    opens=True,
)


def cache_label(name: str) -> str:
    """How a cache is called."""
    return text(f"lab.caches.control.caches.option.{name}")


def cache(name: str, settings: dict[str, Any], head_dim: int) -> CacheConfig:
    """One of :data:`CACHES`; the evicting ones hold ``kept`` tokens in all."""
    if name == "full":
        return CacheConfig()
    if name in ("window", "sinks"):
        sinks = SINKS if name == "sinks" else 0
        return CacheConfig(sinks, settings["kept"] - sinks, Middle.EVICT)
    key, value = (fitted(QuantConfig.parse(spec), head_dim, BLOCK_TOKENS) for spec in SEALED[name])
    offload = Offload.HOST if name.endswith("-host") else Offload.NONE
    return CacheConfig(
        SINKS, settings["window"], Middle.QUANTIZE, BLOCK_TOKENS, key, value, offload=offload
    )  # fmt: skip


def _caches(bench: Bench, settings: dict[str, Any]) -> dict[str, CacheConfig]:
    return {name: cache(name, settings, bench.model.facts.head_dim) for name in settings["caches"]}


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    Yardstick.check_rows(settings["length"], settings["skip"])
    for config in _caches(bench, settings).values():
        check_text(bench, settings["start"], settings["length"], config)


def _work(settings: dict[str, Any]) -> int:
    return int((1 + len(settings["caches"])) * settings["length"])


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    full = Yardstick(bench.model, bench.text(settings["start"], settings["length"]), settings["skip"])
    yield from full.read()
    found: dict[str, Measured] = {}
    for name, config in _caches(bench, settings).items():
        found[name] = yield from full.measure(config)
    facts, tokens = bench.model.facts, settings["length"]
    labels = [cache_label(name) for name in found]
    measured = list(found.values())
    full_bytes = round(facts.kv_bytes_per_token(facts.dtype_bytes) * tokens)
    rows = [
        _row(label, name, one, full_bytes) for label, (name, one) in zip(labels, found.items(), strict=True)
    ]
    columns: list[Any] = [
        ("scheme_name", "text"), ("pair_key", "text"), ("pair_value", "text"), ("cache_bytes", "bytes"),
        ("device_bytes", "bytes"), ("host_bytes", "bytes"), ("of_full", "share"), ("pair_bits", "norm"),
        ("cache_bits", "norm"), ("ppl", "ppl"), ("kl", "nats"), ("top1", "share"),
    ]  # fmt: skip
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=facts,
        text_sha256=bench.corpus.sha256,
        finding=_finding(labels, measured, full_bytes),
        tables={"caches": table(columns, rows)},
        marks={
            "labels": labels,
            "names": list(found),
            "bytes": [one.memory.used for one in measured],
            "sealed_numbers": [_sealed_numbers(one) for one in measured],
            "full_bytes": full_bytes,
            "full_16bit_bytes": round(facts.kv_bytes_per_token(2) * tokens),
        },
        configurations={label: one.cache.to_dict() for label, one in zip(labels, measured, strict=True)},
    )


def _row(label: str, name: str, one: Measured, full_bytes: int) -> list[Cell]:
    used, host = one.memory.used_bytes, _bytes_on(one, "host")
    specs = [one.cache.key.spec, one.cache.value.spec] if name in SEALED else ["", ""]
    return [
        label, *specs, used, used - host, host, used / full_bytes, one.bits, one.memory.cache_bits, one.ppl,
        one.kl, one.top1,
    ]  # fmt: skip


def _bytes_on(one: Measured, location: str) -> int:
    return sum(n for parts in one.memory.used.get(location, {}).values() for n in parts.values())


def _sealed_numbers(one: Measured) -> int:
    """K and V numbers that were sealed: their bytes over the bits that each takes."""
    tiers = (one.memory.used.get(place, {}).get(tier, {}) for place, tier in _SEALED_PLACES)
    sealed = sum(n for parts in tiers for n in parts.values())
    return round(8 * sealed / one.bits) if one.bits else 0


_SEALED_PLACES = (("device", "quantized"), ("host", "offloaded"))


def _finding(labels: list[str], found: list[Measured], full_bytes: int) -> str:
    told = "; ".join(
        text(
            "lab.caches.finding.one",
            name=label, bytes=format_bytes(one.memory.used_bytes), kl=f"{one.kl:.4f}",
        )
        for label, one in zip(labels, found, strict=True)
    )  # fmt: skip
    return text("lab.caches.finding.said", told=told, full=format_bytes(full_bytes))


EXPERIMENT = Experiment(info=INFO, work=_work, run=_run, check=_check)
