"""Results as one JSON object or as a table; the one place that writes to the terminal."""

from __future__ import annotations

import json
import math
import sys
from typing import Any, TextIO

import numpy as np

from kvviz.catalogue import text
from kvviz.events import MASS_TIERS
from kvviz.record import RunRecord
from kvviz.units import format_bits, format_bytes, format_count, format_ms, format_rate, format_share


class Terminal:
    """Results go to ``out``, progress and errors to ``err``."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out, self._err = out, err

    @classmethod
    def current(cls) -> Terminal:
        """The terminal as it is now."""
        return cls(sys.stdout, sys.stderr)

    def show(self, content: str) -> None:
        """A result."""
        self._write(self._out, content)

    def show_json(self, content: Any) -> None:
        """A result as one JSON value; what is not finite becomes null."""
        self.show(json.dumps(finite(content), ensure_ascii=False, allow_nan=False))

    def tell(self, sentence: object) -> None:
        """Progress or an error."""
        self._write(self._err, str(sentence))

    @staticmethod
    def _write(stream: TextIO, content: str) -> None:
        encoding = stream.encoding or "utf-8"
        stream.write(content.encode(encoding, "replace").decode(encoding) + "\n")
        stream.flush()


def finite(value: Any) -> Any:
    """The same plain value with None for infinities and not-a-number, at any depth."""
    if isinstance(value, dict):
        return {key: finite(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(child) for child in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def table(rows: list[tuple[str, str]]) -> str:
    """Two columns, the first padded."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def score_table(plain: dict[str, Any]) -> str:
    """A score for people."""
    shown = {
        "model": f"{plain['model']} · {plain['device']} {plain['dtype']} · {plain['weights_hash']}",
        "corpus": f"{plain['corpus']} · {plain['corpus_sha256'][:16]}",
        "ppl": f"{plain['ppl']:.4f}",
        "ppl_full": f"{plain['ppl_full']:.4f}",
        "kl": f"{plain['kl']:.5f}",
        "top1": f"{plain['top1']:.4f}",
        "rows": format_count(plain["rows"]),
        "bytes": format_bytes(plain["bytes_total"]),
        "bytes_full_16bit": format_bytes(plain["bytes_full_16bit"]),
        "effective_bits": format_bits(plain["effective_bits"]),
        "cache_bits": format_bits(plain["cache_bits"]),
        "seconds": format_ms(1000 * plain["seconds"]),
    }
    return table([(text(f"cli.row.{key}"), value) for key, value in shown.items()])


def run_dict(record: RunRecord) -> dict[str, Any]:
    """A finished run as plain JSON values. Tier mass: mean over heads and generated tokens, by layer."""
    memory = record.memory[-1] if record.memory else None
    facts = record.model
    return {
        "text": record.text,
        "token_ids": record.generated_ids,
        "prompt_tokens": len(record.prompt_ids),
        "status": record.status,
        "message": record.message,
        "bytes": memory.used if memory else {},
        "bytes_reserved": memory.reserved if memory else {},
        "bytes_total": memory.used_bytes if memory else 0,
        "effective_bits": memory.effective_bits if memory else None,
        "cache_bits": memory.cache_bits if memory else None,
        "ttft_ms": record.ttft_ms,
        "tpot_ms": record.tpot_ms,
        "tier_mass": mass_by_layer(record),
        "model": facts.name if facts else None,
        "weights_hash": facts.weights_hash if facts else None,
        "dtype": facts.dtype if facts else None,
        "device": facts.device if facts else None,
        "config": record.config,
    }


def mass_by_layer(record: RunRecord) -> list[dict[str, float]]:
    """Share of attention by tier for each layer."""
    if not record.tier_mass:
        return []
    layers = np.stack(record.tier_mass).astype(np.float64).mean(axis=(0, 2))
    return [
        {tier.value: float(share) for tier, share in zip(MASS_TIERS, layer, strict=True)} for layer in layers
    ]


def run_table(plain: dict[str, Any]) -> str:
    """A run for people: the text, then what it took."""
    tpot_ms = plain["tpot_ms"]
    shown = {
        "model": f"{plain['model']} · {plain['device']} {plain['dtype']} · {plain['weights_hash']}",
        "status": plain["status"],
        "tokens": f"{format_count(plain['prompt_tokens'])} + {format_count(len(plain['token_ids']))}",
        "bytes": format_bytes(plain["bytes_total"]),
        "effective_bits": format_bits(plain["effective_bits"]),
        "cache_bits": format_bits(plain["cache_bits"]),
        "ttft": format_ms(plain["ttft_ms"]),
        "tpot": format_ms(tpot_ms),
        "rate": format_rate(1000 / tpot_ms if tpot_ms else None),
    }
    rows = [(text(f"cli.row.{key}"), value) for key, value in shown.items()]
    layers = plain["tier_mass"]
    for tier in MASS_TIERS if layers else ():
        share = sum(layer[tier.value] for layer in layers) / len(layers)
        rows.append((text("cli.row.mass", tier=tier.value), format_share(share)))
    return f"{plain['text']}\n\n{table(rows)}"
