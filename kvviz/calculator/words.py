"""An answer in sentences. Knows numbers and words; every number is computed from the question."""

from __future__ import annotations

from kvviz.calculator.fit import Answer
from kvviz.catalogue import text
from kvviz.units import format_bits, format_count, format_gib, format_ratio


def users_word(users: int) -> str:
    """``one user`` or ``8 users``."""
    return text("calc.one_user") if users == 1 else text("calc.many_users", n=format_count(users))


def sentences(found: Answer) -> list[str]:
    """Does it fit; the largest context; how many users; how it compares with 16 bits; where the rest is."""
    said = [_fits(found), _context(found), _users(found), _ratio(found)]
    if found.peak_bytes > found.kv.bytes_on("device"):
        said.append(text("calc.say.peak", peak=format_gib(found.peak_bytes)))
    if found.host_bytes:
        said.append(text("calc.say.host", host=format_gib(found.host_bytes)))
    return said


def _fits(found: Answer) -> str:
    question = found.question
    return text(
        f"calc.say.{'fits' if found.fits else 'missing'}",
        users=users_word(question.users),
        tokens=format_count(question.context_tokens),
        model=question.shape.name,
        kv=format_gib(question.users * found.peak_bytes),
        weights=format_gib(found.weights_bytes),
        reserve=format_gib(question.reserve_bytes),
        gpu=format_gib(question.gpu_bytes),
        left=format_gib(abs(found.left_bytes)),
    )


def _context(found: Answer) -> str:
    users, trained = users_word(found.question.users), found.question.shape.context_tokens
    full = _length(found.full_largest_context)
    if found.largest_context is None:
        return text("calc.say.context_any", users=users, full=full)
    if found.largest_context == 0:
        return text("calc.say.context_none", users=users)
    said = text("calc.say.context", users=users, n=_length(found.largest_context), full=full)
    if found.largest_context > trained:
        said += " " + text("calc.say.context_trained", trained=format_count(trained))
    return said


def _length(tokens: int | None) -> str:
    return text("calc.any_length") if tokens is None else format_count(tokens)


def _users(found: Answer) -> str:
    return text(
        "calc.say.users",
        tokens=format_count(found.question.context_tokens),
        n=format_count(found.users_that_fit),
        full=format_count(found.full_users_that_fit),
    )


def _ratio(found: Answer) -> str:
    said = text(
        "calc.say.ratio",
        kv=format_gib(found.kv.total_bytes),
        full=format_gib(found.full_bytes),
        ratio=format_ratio(found.ratio),
        cache_bits=format_bits(found.kv.cache_bits),
    )
    if found.kv.effective_bits is not None:
        said += " " + text("calc.say.effective", bits=format_bits(found.kv.effective_bits))
    return said
