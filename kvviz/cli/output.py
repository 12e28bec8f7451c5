"""Results as one JSON object or as a table; the one place that writes to the terminal."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from kvviz.catalogue import text
from kvviz.events import MASS_TIERS
from kvviz.plain import finite
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
    decode = (plain["timeline"] or {}).get("decode")
    if decode is not None:
        for kind in ("in", "out"):
            n_bytes = decode["bytes_per_token"][f"copy_{kind}"]
            rows.append((text(f"cli.row.carried_{kind}"), format_bytes(n_bytes)))
        rows.append((text("cli.row.overlap"), format_share(decode["overlap"])))
    return f"{plain['text']}\n\n{table(rows)}"
