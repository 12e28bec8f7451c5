"""A run's record as text small enough to be passed on, and back without trusting a byte of it.

Left out are the attention maps (tens of megabytes). Shares of attention are rounded, and where the whole
would be too large, they and timelines are kept for every second, fourth, ... step only: a step that was left
out holds not-a-number, or no timeline, never a made-up one. All else is exact, energies to single precision.
Knows no page and no file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from kvviz import timeline
from kvviz.array_text import (
    FINE_LEVELS,
    LEVELS,
    ROUNDED,
    Allowance,
    pack_exact,
    pack_json,
    pack_rounded,
    unpack,
    unpack_json,
)
from kvviz.catalogue import keys
from kvviz.config import RunConfig
from kvviz.errors import KvvizError
from kvviz.events import MASS_TIERS, MemorySnapshot, ModelFacts, Tier
from kvviz.record import RunRecord
from kvviz.units import format_count

_MOST_LAYERS, _MOST_HEADS, _MOST_HEAD_DIM, _MOST_TOKENS = 512, 1024, 4096, 1 << 17
_MOST_LABEL = 200
_ENDED = ("eos", "length", "stopped", "failed")
_ENERGIES = ("key_signal", "key_error", "value_signal", "value_error")
_EXACT = {"prompt_ids": "<i4", "generated_ids": "<i4", "received_lengths": "<i4", "head_rows": "<i4",
          "timeline_lengths": "<i4", "timeline_rows": "<i4", "timeline_notes": "<i4", "timeline_kinds": "<i4",
          "timeline_layers": "<i4", "timeline_start_ms": "<f4", "timeline_stop_ms": "<f4",
          "timeline_n_bytes": "<f8", "logprobs": "<f8", "step_ms": "<f8",
          **dict.fromkeys(_ENERGIES, "<f4")}  # fmt: skip
_LEVELS = {"tier_mass": LEVELS, "received": LEVELS}  # all others: FINE_LEVELS
_MAPS = ("attention", "edges")


def to_text(records: Sequence[RunRecord], most_characters: int) -> list[dict[str, Any]]:
    """Ended runs as plain JSON values of at most ``most_characters`` together.

    Raises:
        KvvizError: not even every 64th step fits.
    """
    for stride in (1, 2, 4, 8, 16, 32, 64):
        plain = [_to_plain(_thinned(record, stride)) for record in records]
        if sum(len(json.dumps(p)) for p in plain) <= most_characters:
            return plain
    raise KvvizError("file_large", most=format_count(most_characters))


def from_text(plain: Any, allowance: Allowance) -> RunRecord:
    """Inverse of :func:`to_text`, for one record; its numbers are then ``stored``.

    Raises:
        KvvizError: anything that :func:`to_text` does not write, naming the part that is wrong.
    """
    if not isinstance(plain, dict) or not isinstance(plain.get("arrays"), dict):
        raise KvvizError("file_wrong", reason="record")
    header = _header(unpack_json(plain.get("header"), allowance))
    shapes = _shapes(header)
    given = plain["arrays"]
    if set(given) - set(shapes) or {"prompt_ids", "generated_ids", "logprobs", "step_ms"} - set(given):
        raise KvvizError("file_wrong", reason="arrays")
    arrays = {name: unpack(given[name], _EXACT.get(name, ROUNDED), shapes[name], allowance) for name in given}
    try:
        record = RunRecord.from_parts(header, arrays)
        _check(record)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise KvvizError("file_wrong", reason=f"record, {type(error).__name__}") from error
    return replace(record, is_stored=True)


# -- writing ------------------------------------------------------------------------------------------------


def _thinned(record: RunRecord, stride: int) -> RunRecord:
    """Without maps; shares of attention and timelines of every ``stride``-th step, from the last."""
    steps = len(record.tier_mass)
    keep = [(steps - 1 - i) % stride == 0 for i in range(steps)]
    return replace(
        record,
        attention=None,
        grid=None,
        tier_mass=[m if k else np.full_like(m, np.nan) for m, k in zip(record.tier_mass, keep, strict=True)],
        received=[r if k else r[:0] for r, k in zip(record.received, keep, strict=True)],
        timelines=[t if k else None for t, k in zip(record.timelines, keep, strict=False)],
    )


def _to_plain(record: RunRecord) -> dict[str, Any]:
    if record.status not in _ENDED or record.model is None:
        raise KvvizError("file_not_ended")
    header, arrays = record.to_parts()
    return {
        "header": pack_json(json.dumps(header, ensure_ascii=False, allow_nan=False)),
        "arrays": {
            name: pack_exact(values, _EXACT[name])
            if name in _EXACT
            else pack_rounded(values, _LEVELS.get(name, FINE_LEVELS))
            for name, values in arrays.items()
            if name not in _MAPS
        },
    }


# -- reading ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Header:
    """A record's header, for its types alone."""

    version: int
    mass_tiers: list[str]
    status: Literal["eos", "length", "stopped", "failed"]
    run_id: str
    config: dict[str, Any]
    model: ModelFacts
    labels: list[tuple[str, str]]
    text: str
    prefill_tokens: int
    spans: list[list[tuple[Tier, int, int]]]
    memory: list[MemorySnapshot]
    tokens_per_cell: int | None
    sealed_tokens: int | None
    ttft_ms: float | None
    tpot_ms: float | None
    message: str


@cache
def _adapter() -> TypeAdapter[_Header]:
    return TypeAdapter(_Header)


def _header(content: str) -> dict[str, Any]:
    try:
        header = json.loads(content, parse_constant=_not_finite)
        _adapter().validate_json(content, strict=True)
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise KvvizError("file_wrong", reason=place[:60]) from error
    except (ValueError, RecursionError) as error:
        raise KvvizError("file_wrong", reason="JSON") from error
    known: dict[str, Any] = {name: header[name] for name in _Header.__annotations__}
    return known


def _not_finite(constant: str) -> float:
    raise ValueError(constant)


def _shapes(header: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every array that may be there; -1 is any length."""
    model = ModelFacts(**header["model"])
    sizes = (
        (model.n_layers, _MOST_LAYERS), (model.n_heads, _MOST_HEADS), (model.n_kv_heads, _MOST_HEADS),
        (model.head_dim, _MOST_HEAD_DIM), (model.vocab_size, 1 << 26), (model.dtype_bytes, 8),
        (len(header["labels"]), _MOST_TOKENS),
    )  # fmt: skip
    if any(not 1 <= size <= most for size, most in sizes) or model.n_heads % model.n_kv_heads:
        raise KvvizError("file_wrong", reason="model")
    steps, heads = len(header["memory"]), (model.n_layers, model.n_heads)
    energies = (model.n_layers, model.n_kv_heads, model.head_dim)
    return {
        "prompt_ids": (-1,),
        "generated_ids": (steps,),
        "logprobs": (steps,),
        "step_ms": (steps,),
        "tier_mass": (steps, *heads, len(MASS_TIERS)),
        "received": (-1,),
        "received_lengths": (steps,),
        "head_rows": (steps,),
        "head_first_mass": (steps, *heads),
        "head_tier_mass": (steps, *heads, len(MASS_TIERS)),
        "head_entropy": (steps, *heads),
        "head_distance": (steps, *heads),
        **dict.fromkeys(timeline.ARRAYS, (-1,)),
        **dict.fromkeys(timeline.PER_STEP, (steps,)),
        **dict.fromkeys(_ENERGIES, energies),
    }


def _check(record: RunRecord) -> None:
    """Refuse what no run writes, whatever the shapes.

    Raises:
        KvvizError: the settings break a rule of theirs.
        ValueError: names the part.
    """
    config, model = RunConfig.from_dict(record.config), record.model
    assert model is not None
    words = (
        config.prompt,
        config.label,
        model.name,
        model.dtype,
        model.device,
        model.weights_hash,
        model.commit,
    )
    if not all(isinstance(word, str) for word in words) or len(config.label) > _MOST_LABEL:
        raise ValueError("config")
    prompt, tokens, steps = len(record.prompt_ids), len(record.token_ids), len(record.memory)
    if not prompt or tokens != len(record.labels) or len(record.spans) != steps:
        raise ValueError("labels")
    if not 0 <= record.prefill_tokens <= prompt or not all(0 <= i < 1 << 26 for i in record.token_ids):
        raise ValueError("tokens")
    if any(len(kept) != steps for kept in (record.tier_mass, record.received, record.head_summary)):
        raise ValueError("shares")
    timeline.check(record.timelines, model.n_layers)
    for step in range(steps):
        seen = prompt + step
        _check_spans(record, step, seen)
        _check_memory(record.memory[step], seen)
        if len(record.received[step]) not in (0, seen):
            raise ValueError("received")
    times = [ms for ms in (record.ttft_ms, record.tpot_ms) if ms is not None]
    if any(ms < 0 for ms in (*times, *record.step_ms)):
        raise ValueError("times")
    numbers: list[Any] = [times, record.step_ms, record.logprobs, *record.received]
    for head in record.head_summary:
        numbers += [head.first_mass, head.tier_mass, head.entropy, head.distance]
    energies = record.seal_error
    numbers += [getattr(energies, name) for name in _ENERGIES] if energies else []
    if not all(np.isfinite(np.asarray(values)).all() for values in numbers):
        raise ValueError("numbers")
    if energies and any(getattr(energies, name).min() < 0 for name in _ENERGIES):
        raise ValueError("energies")
    shares: list[NDArray[Any]] = [*record.tier_mass, *record.received]
    shares += [kept for head in record.head_summary for kept in (head.first_mass, head.tier_mass)]
    if any(np.nanmax(np.nan_to_num(share), initial=0) > 1.01 for share in shares):
        raise ValueError("shares")


def _check_spans(record: RunRecord, step: int, seen: int) -> None:
    place = 0
    for span in record.spans[step]:
        if span.start < place or not span.start <= span.stop <= seen:
            raise ValueError("spans")
        place = span.stop


def _check_memory(memory: MemorySnapshot, seen: int) -> None:
    known = keys()
    for tree in (memory.used, memory.reserved):
        for location, tiers in tree.items():
            if f"figures.location.{location}" not in known:
                raise ValueError("memory")
            for tier, parts in tiers.items():
                Tier(tier)
                if any(not 0 <= n < 1 << 50 or len(part) > 40 for part, n in parts.items()):
                    raise ValueError("memory")
    bits = [b for b in (memory.effective_bits, memory.cache_bits) if b is not None]
    if not 0 <= memory.tokens <= seen or any(not 0 <= b <= 128 for b in bits):
        raise ValueError("memory")
