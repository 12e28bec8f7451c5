"""The calculator in a terminal: an answer in sentences with its arithmetic, or as plain values.

Knows the calculator's room; loads no model.
"""

from __future__ import annotations

import argparse
from typing import Any

from kvviz.calculator import (
    Answer,
    Claim,
    Question,
    answer,
    claims,
    gpu,
    gpus,
    lines,
    model,
    models,
    sentences,
)
from kvviz.catalogue import text
from kvviz.cli.output import table
from kvviz.config import CacheConfig
from kvviz.units import format_count


def ask(arguments: argparse.Namespace, cache: CacheConfig) -> Answer:
    """The answer to what the flags ask.

    Raises:
        ConfigError: an unknown model or GPU, or a number outside its range.
    """
    gib = gpu(arguments.gpu).gib if arguments.gpu_gib is None else arguments.gpu_gib
    return answer(
        Question(
            model(arguments.model), cache, gpu_gib=gib, reserve_gib=arguments.reserve_gib,
            weights_bits=arguments.weights_bits, context_tokens=arguments.context, users=arguments.users,
            page_size=arguments.page,
        )
    )  # fmt: skip


def answer_words(found: Answer, *, with_claims: bool) -> str:
    """Sentences, then the arithmetic, then (if asked for) the claims."""
    parts = ["\n".join(sentences(found)), _sums(lines(found))]
    if with_claims:
        parts += [text("calc.cli.say"), *(_claim_words(claim) for claim in claims())]
    return "\n\n".join(parts)


def _sums(shown: Any) -> str:
    return "\n".join(f"{line.label}\n    {line.expression} = {line.shown}" for line in shown)


def _claim_words(claim: Claim) -> str:
    verdict = text(f"calc.verdict.{claim.verdict}")
    return f"“{claim.said}” – {verdict}. {claim.answer}\n{_sums(claim.lines)}"


def answer_dict(found: Answer, *, with_claims: bool) -> dict[str, Any]:
    """Plain JSON values; all sizes in bytes."""
    question = found.question
    plain: dict[str, Any] = {
        "model": question.shape.name,
        "cache": question.cache.to_dict(),
        "context_tokens": question.context_tokens,
        "users": question.users,
        "page_size": question.page_size,
        "gpu_bytes": question.gpu_bytes,
        "reserve_bytes": question.reserve_bytes,
        "weights_bytes": found.weights_bytes,
        "kv_bytes": found.kv.total_bytes,
        "kv_used": found.kv.used,
        "padding_bytes": found.kv.padding_bytes,
        "peak_bytes": found.peak_bytes,
        "full_bytes": found.full_bytes,
        "room_bytes": found.room_bytes,
        "left_bytes": found.left_bytes,
        "host_bytes": found.host_bytes,
        "fits": found.fits,
        "largest_context": found.largest_context,
        "users_that_fit": found.users_that_fit,
        "effective_bits": found.kv.effective_bits,
        "cache_bits": found.kv.cache_bits,
        "sentences": sentences(found),
        "arithmetic": [_line(line) for line in lines(found)],
    }
    if with_claims:
        plain["claims"] = [
            {"said": c.said, "verdict": c.verdict, "answer": c.answer, "arithmetic": [*map(_line, c.lines)]}
            for c in claims()
        ]
    return plain


def _line(line: Any) -> dict[str, Any]:
    return {"label": line.label, "expression": line.expression, "result": line.result, "unit": line.unit}


def listing() -> dict[str, Any]:
    """Models and GPUs as plain JSON values."""
    return {
        "models": [
            {
                "name": m.name, "layers": m.n_layers, "kv_heads": m.n_kv_heads, "head_dim": m.head_dim,
                "window": m.window_tokens, "context_tokens": m.context_tokens, "parameters": m.parameters,
            }
            for m in models()
        ],
        "gpus": [{"name": card.name, "gib": card.gib} for card in gpus()],
    }  # fmt: skip


def listing_words() -> str:
    """The same for people."""
    shapes = [(m.name, text("calc.cli.model", layers=m.n_layers, heads=m.n_kv_heads, dim=m.head_dim,
                            parameters=format_count(m.parameters))) for m in models()]  # fmt: skip
    return f"{table(shapes)}\n\n{table([(card.name, f'{card.gib} GiB') for card in gpus()])}"
