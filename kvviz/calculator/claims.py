"""Numbers that go round about KV caches, worked out again with the same formula.

What is claimed lies in ``assets/calculator.json``; whether it is right is computed here, never stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from kvviz.calculator.arithmetic import Line, product
from kvviz.calculator.shapes import stored
from kvviz.catalogue import text
from kvviz.units import format_count, format_gib

Verdict = Literal["right", "wrong", "codes_only"]
_TOLERANCE = 0.005  # a claim in three digits is right to half a percent


@dataclass(frozen=True, slots=True)
class Claim:
    """What is said, whether it is right, the answer in a sentence, and its arithmetic."""

    key: str
    said: str
    verdict: Verdict
    answer: str
    lines: tuple[Line, ...]


def claims() -> list[Claim]:
    """All of them, in order."""
    return [
        _bytes_claim(entry) if "said_bytes" in entry else _share_claim(entry) for entry in stored()["claims"]
    ]


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= _TOLERANCE * abs(b)


def _bytes_claim(entry: dict[str, Any]) -> Claim:
    key = entry["key"]
    factors = [2, entry["n_layers"], entry["n_kv_heads"], entry["head_dim"], 2, entry["tokens"]]
    factors += [entry["users"]] if entry["users"] > 1 else []
    n_bytes = prod(factors)
    line = Line(text("calc.claim.line"), product(factors), n_bytes)
    return Claim(
        key,
        text(f"calc.claim.{key}.said"),
        "right" if _close(n_bytes, entry["said_bytes"]) else "wrong",
        text(
            f"calc.claim.{key}.answer",
            gib=format_gib(n_bytes),
            requests=format_count(entry["said_bytes"] // n_bytes),
        ),
        (line,),
    )


def _share_claim(entry: dict[str, Any]) -> Claim:
    key, bits, metadata, group = entry["key"], entry["bits"], entry["metadata_bits"], entry["group_size"]
    codes, stored_bits = bits / 16, bits + metadata / group
    right: Verdict = "codes_only" if _close(codes, entry["said_share"]) else "wrong"
    needed = 16 * entry["said_share"]
    lines = [
        Line(text("calc.claim.codes", bits=bits), f"{bits} / 16", codes, "share"),
        Line(
            text("calc.claim.metadata", bits=bits, group=group, metadata=metadata),
            f"({bits} + {metadata} / {group}) / 16",
            stored_bits / 16,
            "share",
        ),
    ]
    if right == "wrong":
        lines.append(Line(text("calc.claim.needed"), f"{needed:g} / 16", entry["said_share"], "share"))
    return Claim(
        key,
        text(f"calc.claim.{key}.said"),
        right,
        text(f"calc.claim.{key}.answer", share=lines[1].shown, needed=f"{needed:g}"),
        tuple(lines),
    )
