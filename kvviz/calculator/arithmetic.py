"""The arithmetic of an answer, line by line, in a form that can be typed into any calculator.

Knows answers and words; every line's left side is evaluated and compared with its right side in a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kvviz.calculator.fit import Answer
from kvviz.calculator.formula import LayerGroup, counts, layer_groups, terms
from kvviz.catalogue import text
from kvviz.units import format_count, format_gib

TIMES = " × "


@dataclass(frozen=True, slots=True)
class Line:
    """``expression`` equals ``result`` (in ``unit``: "bytes", "tokens" or "share")."""

    label: str
    expression: str
    result: float
    unit: str = "bytes"

    @property
    def shown(self) -> str:
        """The right side as people read it; bytes also in GiB."""
        if self.unit == "share":
            return f"{100 * self.result:.4g} %"
        number = format_count(int(self.result))
        if self.unit == "tokens":
            return text("calc.line.tokens", n=number)
        return text("calc.line.bytes", n=number, gib=format_gib(self.result))


def product(factors: Sequence[int]) -> str:
    """``2 × 30 × 3``."""
    return TIMES.join(format_count(factor) for factor in factors)


def total(numbers: Sequence[int]) -> str:
    """``1 + 2``."""
    return " + ".join(format_count(number) for number in numbers)


def lines(found: Answer) -> list[Line]:
    """From one token to what is left on the GPU."""
    question, shape = found.question, found.question.shape
    tokens, cache = question.context_tokens, question.cache
    per_token = (2, shape.n_layers, shape.n_kv_heads, shape.head_dim, 2)
    shown = [Line(text("calc.line.token"), product(per_token), prod(per_token))]
    groups = layer_groups(shape, cache)
    for group in groups:
        shown.append(_tokens_line(found, group, many=len(groups) > 1))
    parts = []
    for term in terms(shape, cache, tokens, question.dtype_bytes):
        label = text(
            f"calc.line.{'exact' if term.side == 'both' else 'sealed'}",
            tier=text(f"figures.tier.{term.tier.value}"),
            side=text(f"calc.side.{term.side}"),
            part=text(f"calc.part.{term.part}"),
        )
        parts.append(Line(label, product(term.factors), term.n_bytes))
    shown += parts
    amounts = [int(part.result) for part in parts]
    if found.kv.padding_bytes:
        amounts.append(found.kv.padding_bytes)
        shown.append(_padding_line(found, groups))
    if len(amounts) > 1:
        shown.append(Line(text("calc.line.one_user"), total(amounts), found.kv.total_bytes))
    return [*shown, *_gpu_lines(found)]


def _tokens_line(found: Answer, group: LayerGroup, *, many: bool) -> Line:
    held = counts(found.question.cache, found.question.context_tokens, group.window_tokens)
    label = text("calc.line.layers", n=group.count) if many else text("calc.line.held")
    return Line(label, total((held.sink, held.sealed, held.exact, held.window)), held.held, "tokens")


def _padding_line(found: Answer, groups: Sequence[LayerGroup]) -> Line:
    question, shape = found.question, found.question.shape
    amounts = []
    for group in groups:
        held = counts(question.cache, question.context_tokens, group.window_tokens).held_exactly
        empty = -held % question.page_size
        factors = (2, group.count, shape.n_kv_heads, shape.head_dim, empty, question.dtype_bytes)
        amounts.append(product(factors))
    return Line(text("calc.line.padding"), " + ".join(amounts), found.kv.padding_bytes)


def _gpu_lines(found: Answer) -> list[Line]:
    question = found.question
    users = question.users * found.peak_bytes
    shown = [
        _weights_line(found),
        Line(
            text("calc.line.room"),
            f"{format_count(question.gpu_bytes)} − {format_count(question.reserve_bytes)} − "
            f"{format_count(found.weights_bytes)}",
            found.room_bytes,
        ),
        Line(text("calc.line.users"), product((question.users, found.peak_bytes)), users),
    ]
    left = f"{format_count(found.room_bytes)} − {format_count(users)}"
    return [*shown, Line(text("calc.line.left"), left, found.left_bytes)]


def _weights_line(found: Answer) -> Line:
    shape, bits = found.question.shape, found.question.weights_bits
    if bits is None and shape.published_weights_bytes:
        return Line(
            text("calc.line.weights_published"), format_count(found.weights_bytes), found.weights_bytes
        )
    expression = f"{format_count(shape.parameters)} × {bits or 16} / 8"
    return Line(text("calc.line.weights"), expression, found.weights_bytes)
