"""The token strip: where each token's K and V live now, what they weigh, what attention they receive.

Knows positions and tiers; bytes per token are the ledger's bytes of a tier shared evenly by its tokens.
Everything that is the same for a whole tier is said once per tier, so that long strips stay small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvviz.catalogue import text
from kvviz.events import MemorySnapshot, ModelFacts, Span, Tier
from kvviz.figures.theme import NEW, TIER_ORDER, UNKNOWN, palette, record_state, short, tier_name
from kvviz.record import RunRecord
from kvviz.units import format_bits, format_bytes

LABEL_LENGTH = 24
#: Received shares travel as whole numbers of this unit.
SHARE_UNIT = 1e-6


@dataclass(frozen=True, slots=True)
class TierFacts:
    """What one tier holds at one step. ``bits`` is per number; None where unknown."""

    tier: str
    tokens: int
    used: int
    bytes_per_token: float | None
    bits: float | None
    locations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenStrip:
    """``tiers`` is ``(N,)`` uint8, indices into ``TIER_ORDER``; ``received`` ``(T,)`` float32, ``T <= N``."""

    step: int | None
    n_prompt: int
    labels: tuple[str, ...]
    tiers: NDArray[np.uint8]
    received: NDArray[np.float32]
    facts: tuple[TierFacts, ...]


def token_strip(record: RunRecord, step: int | None = None) -> TokenStrip:
    """The strip after generated token ``step`` (None: the latest, negative: from the end).

    The token chosen at that step is the last one shown: tier ``new``, no K and V, nothing received.
    """
    n_prompt = len(record.prompt_ids)
    n_steps = len(record.spans)
    if not n_steps:
        codes = np.full(n_prompt, TIER_ORDER.index(NEW), dtype=np.uint8)
        codes[: record.prefill_tokens] = TIER_ORDER.index(UNKNOWN)
        return TokenStrip(None, n_prompt, _labels(record, n_prompt), codes, np.zeros(0, np.float32), ())
    step = n_steps - 1 if step is None else step + n_steps if step < 0 else step
    step = min(max(step, 0), n_steps - 1)
    spans, received = record.spans[step], record.received[step]
    n_tokens = n_prompt + step + 1
    codes = np.full(n_tokens, TIER_ORDER.index(NEW), dtype=np.uint8)
    for span in spans:
        codes[span.start : span.stop] = TIER_ORDER.index(span.tier.value)
    facts = _facts(spans, record.memory[step], record.model)
    return TokenStrip(step, n_prompt, _labels(record, n_tokens), codes, received, facts)


def _labels(record: RunRecord, n_tokens: int) -> tuple[str, ...]:
    return tuple(short(label.display, LABEL_LENGTH) for label in record.labels[:n_tokens])


def _facts(
    spans: tuple[Span, ...], memory: MemorySnapshot, model: ModelFacts | None
) -> tuple[TierFacts, ...]:
    facts = []
    for tier in Tier:
        tokens = sum(span.stop - span.start for span in spans if span.tier is tier)
        used = {place: sum(tiers.get(tier.value, {}).values()) for place, tiers in memory.used.items()}
        total = sum(used.values())
        if not tokens and not total:
            continue
        per_token = total / tokens if tokens else None
        numbers = model.kv_bytes_per_token(1) if model else 0
        bits = 8 * per_token / numbers if per_token is not None and numbers else None
        locations = tuple(place for place, n_bytes in used.items() if n_bytes)
        facts.append(TierFacts(tier.value, tokens, total, per_token, bits, locations))
    return tuple(facts)


def strip_data(record: RunRecord, step: int | None = None) -> dict[str, Any]:
    """The strip as JSON values for a canvas; see the keys below. Labels are plain text, never markup."""
    strip = token_strip(record, step)
    present = sorted(set(strip.tiers.tolist()))
    facts = {fact.tier: fact for fact in strip.facts}
    sentence = "" if strip.labels else text(record_state([record]))
    return {
        "step": strip.step,
        "count": len(strip.labels),
        "prompt": strip.n_prompt,
        "labels": list(strip.labels),
        "tiers": strip.tiers.tolist(),
        "received": np.round(strip.received.astype(np.float64) / SHARE_UNIT).astype(np.int64).tolist(),
        "received_unit": SHARE_UNIT,
        "legend": [_legend(code, facts.get(TIER_ORDER[code])) for code in present],
        "words": {name: text(f"figures.strip.{name}") for name in _WORDS},
        "kind": text(f"figures.kind.{record.kind}"),
        "empty": sentence,
    }


_WORDS = ("position", "tier", "bits", "bytes", "received", "none", "prompt", "generated")


def _legend(code: int, facts: TierFacts | None) -> dict[str, Any]:
    tier = TIER_ORDER[code]
    style = palette().tiers[tier]
    return {
        "code": code,
        "tier": tier,
        "name": tier_name(tier),
        "color": style.color,
        "glyph": style.glyph,
        "shape": style.shape,
        "pattern": style.pattern,
        "filled": style.filled,
        "meaning": text(f"figures.tier_meaning.{tier}"),
        "tokens": facts.tokens if facts else None,
        "bits": facts.bits if facts else None,
        "bits_text": format_bits(facts.bits if facts else None),
        "bytes_per_token": facts.bytes_per_token if facts else None,
        "bytes_text": "–"
        if facts is None or facts.bytes_per_token is None
        else format_bytes(facts.bytes_per_token),
        "locations": [text(f"figures.location.{place}") for place in facts.locations] if facts else [],
    }
