"""The comparison in a terminal: configurations from words, the table, verdicts and worst tokens.

Knows what a comparison holds; runs nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from kvviz.catalogue import text
from kvviz.cli.arguments import CACHE_FLAGS
from kvviz.cli.output import table
from kvviz.comparison import Comparison, Score
from kvviz.comparison_request import ComparisonRequest, TextSlice
from kvviz.comparison_words import cache_words, cell_words, measure_label, verdict, verdict_line
from kvviz.config import CacheConfig, SamplingConfig
from kvviz.errors import ConfigError

NO_TEXT = "none"
_SHOWN_WORST = 3
_WHOLE_NUMBERS = ("sink_size", "window_size", "block_size")


def read_configuration(
    words: str, preset: Callable[[str], CacheConfig], label: Callable[[str], str]
) -> tuple[str, CacheConfig]:
    """``full-stack``, ``kivi-4,window=64`` or ``middle=evict,sink=0,window=132``: a preset, settings in its
    place, or both.

    Raises:
        ConfigError: an unknown preset or setting, or settings that contradict each other.
    """
    first, *rest = [part.strip() for part in words.split(",")]
    name = "" if "=" in first else first
    settings = rest if name else [first, *rest]
    plain = (preset(name) if name else CacheConfig()).to_dict()
    for part in settings:
        flag, mark, value = part.partition("=")
        field = CACHE_FLAGS.get(flag.strip(), flag.strip())
        if not mark or field not in CACHE_FLAGS.values():
            raise ConfigError("compare_setting", given=part, known=", ".join(CACHE_FLAGS))
        is_whole = field in _WHOLE_NUMBERS and value.strip().isdecimal()
        plain[field] = int(value) if is_whole else value.strip()
    shown = label(name) if name else ""
    changed = ", ".join(settings)
    return " + ".join(filter(None, [shown, changed])), CacheConfig.from_dict(plain)


def read_request(
    arguments: argparse.Namespace,
    prompt: str,
    preset: Callable[[str], CacheConfig],
    label: Callable[[str], str],
) -> ComparisonRequest:
    """What the flags ask.

    Raises:
        ConfigError: a flag that breaks a rule.
    """
    configurations = tuple(read_configuration(words, preset, label) for words in arguments.config)
    scored = None
    if arguments.text != NO_TEXT:
        scored = TextSlice(arguments.text, arguments.start, arguments.length, arguments.skip)
    return ComparisonRequest(
        prompt=prompt,
        configurations=configurations,
        use_chat_template=not arguments.no_chat,
        max_new_tokens=arguments.max_new_tokens,
        sampling=SamplingConfig(arguments.temperature, arguments.top_p, arguments.seed),
        chunk_size=arguments.chunk,
        text=scored,
    )


def comparison_words(comparison: Comparison) -> str:
    """For people: settings and verdict of each, the table, worst tokens, texts."""
    letters = [chr(ord("A") + i) for i in range(len(comparison.entries))]
    parts = []
    for i, (letter, entry) in enumerate(zip(letters, comparison.entries, strict=True)):
        settings = cache_words(CacheConfig.from_dict(entry.cache))
        parts.append(f"{letter}: {entry.label}\n   {settings}\n   {verdict_line(verdict(comparison, i))}")
    parts.append(_numbers(comparison, letters))
    for letter, entry in zip(letters, comparison.entries, strict=True):
        if entry.score is not None and entry.score.worst:
            parts.append(_worst(letter, entry.score))
    for letter, entry in zip(letters, comparison.entries, strict=True):
        parts.append(f"{letter}: {entry.generation.text}\n{entry.generation.message}".rstrip())
    facts = comparison.model
    parts.append(f"{facts.name} · {facts.device} {facts.dtype} · {facts.weights_hash}")
    return "\n\n".join(parts)


def _numbers(comparison: Comparison, letters: list[str]) -> str:
    lines = [["", *letters]]
    for row in comparison.rows():
        heading = measure_label(row.measure, comparison.model.dtype)
        lines.append([heading, *(cell_words(value, row.measure.unit) for value in row.values)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _worst(letter: str, score: Score) -> str:
    rows = [
        (
            f"  {token.position} {token.token}",
            text("cli.compare_worst", full=f"{token.nll_full:.3f}", here=f"{token.nll:.3f}",
                 expected=token.choice_full, instead=token.choice),
        )
        for token in score.worst[:_SHOWN_WORST]
    ]  # fmt: skip
    return f"{text('cli.compare_worst_of', letter=letter)}\n{table(rows)}"
