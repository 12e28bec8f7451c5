"""A comparison in words: the verdict of each configuration, its numbers as people read them, its settings.

Every word is looked up when it is asked for. Knows numbers and the catalogue; knows no page.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.catalogue import text
from kvviz.comparison import Cell, Comparison, Measure, Unit
from kvviz.config import CacheConfig, Middle
from kvviz.offload_config import OffloadRead
from kvviz.units import (
    format_bits,
    format_bytes,
    format_count,
    format_ms,
    format_number,
    format_ratio,
    format_share,
)

#: A change of perplexity below this is told as none: it is what rounding does.
NO_CHANGE = 5e-5


@dataclass(frozen=True, slots=True)
class Verdict:
    """The numbers of one verdict line; None where nothing was measured.

    ``ratio_16bit`` and ``ratio_own`` are formula bytes / used bytes; ``ppl_change`` is perplexity over that
    of full precision, less 1; ``divergence`` the first generated token that differs from the first
    configuration's, None if there is none among ``generated``; ``is_first`` is true for the one that the
    others part from.
    """

    ratio_16bit: float | None
    ratio_own: float | None
    dtype: str
    ppl_change: float | None
    divergence: int | None
    generated: int
    is_first: bool
    failed: bool


def verdict(comparison: Comparison, index: int) -> Verdict:
    """The numbers of configuration ``index``."""

    def number(key: str) -> float | None:
        value = comparison.value(key, index)
        return None if value is None else float(value)

    made = comparison.entries[index].generation
    return Verdict(
        ratio_16bit=number("ratio_16bit"),
        ratio_own=number("ratio_own"),
        dtype=comparison.model.dtype,
        ppl_change=number("ppl_change"),
        divergence=made.divergence,
        generated=len(made.token_ids),
        is_first=index == 0,
        failed=made.status == "failed",
    )


def verdict_line(told: Verdict) -> str:
    """``4.91× smaller than in 16 bits · perplexity +1.31 % · diverges from A at token 41``."""
    parts = [*_size(told), *_quality(told), *_text(told)]
    return text("compare.verdict.join").join(parts) if parts else text("compare.verdict.nothing")


def _size(told: Verdict) -> list[str]:
    if told.ratio_16bit is None or told.ratio_own is None:
        return []
    which = "smaller" if told.ratio_16bit >= 1 else "larger"
    ratio = max(told.ratio_16bit, 1 / told.ratio_16bit)
    words = text(f"compare.verdict.{which}", ratio=format_ratio(ratio))
    if told.ratio_own == told.ratio_16bit:
        return [words]
    own = "own_same" if round(told.ratio_own, 2) == 1 else "own"
    return [words + text(f"compare.verdict.{own}", ratio=format_ratio(told.ratio_own), dtype=told.dtype)]


def _quality(told: Verdict) -> list[str]:
    if told.ppl_change is None:
        return []
    if abs(told.ppl_change) < NO_CHANGE:
        return [text("compare.verdict.ppl_same")]
    return [text("compare.verdict.ppl", change=format_change(told.ppl_change))]


def _text(told: Verdict) -> list[str]:
    if told.failed:
        return [text("compare.verdict.failed")]
    if told.is_first or not told.generated:
        return []
    if told.divergence is None:
        return [text("compare.verdict.same", tokens=format_count(told.generated))]
    return [text("compare.verdict.parts", token=format_count(told.divergence))]


def format_change(change: float | None) -> str:
    """``0.0131`` -> ``+1.31 %``."""
    return "–" if change is None else f"{100 * change:+.2f} %"


def cell_words(value: Cell, unit: Unit) -> str:
    """One number as people read it; an en dash where there is none."""
    if value is None:
        return "–"
    match unit:
        case "count" | "place":
            return format_count(int(value))
        case "share":
            return format_share(value)
        case "change":
            return format_change(value)
        case "bytes":
            return format_bytes(value)
        case "ratio":
            return format_ratio(value)
        case "bits":
            return format_bits(value)
        case "ms":
            return format_ms(value)
        case _:
            return format_number(value)


def measure_label(measure: Measure, dtype: str) -> str:
    """The heading of one number."""
    return text(f"compare.measure.{measure.key}.label", dtype=dtype)


def measure_info(measure: Measure, dtype: str) -> str:
    """How it came about: the formula of a computed one."""
    return text(f"compare.measure.{measure.key}.info", dtype=dtype)


def cache_words(cache: CacheConfig) -> str:
    """A configuration in one line of its own terms."""
    words = [f"middle={cache.middle.value}"]
    if cache.middle is not Middle.KEEP:
        words += [f"sinks={cache.sink_size}", f"window={cache.window_size}"]
    if cache.middle is Middle.QUANTIZE:
        words += [f"block={cache.block_size}", f"K={cache.key.spec}", f"V={cache.value.spec}"]
        words += [] if cache.offload.is_none else [f"offload={cache.offload.spec}"]
    if cache.offload_read is not OffloadRead.PREFETCH:
        words.append(f"read={cache.offload_read.value}")
    if cache.position.value != "original":
        words.append(f"position={cache.position.value}")
    if cache.prefill.value != "streamed":
        words.append(f"prefill={cache.prefill.value}")
    words += [f"{o.layer}:{o.key.spec}/{o.value.spec}" for o in cache.overrides]
    return " · ".join(words)
