"""Every sentence a person reads, looked up by key from ``assets/text/<language>/*.json``.

This module does not know who asks or where the text is shown: whoever serves a person says in which language
it speaks meanwhile (:func:`speaking`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ASSETS_DIR = Path(__file__).resolve().parent.parent / "assets"
DEFAULT_LANGUAGE = "en"

_spoken: ContextVar[str] = ContextVar("kvviz_language", default=DEFAULT_LANGUAGE)


@cache
def languages() -> tuple[str, ...]:
    """Every language that has a folder of texts, the default one first."""
    found = sorted(path.name for path in (ASSETS_DIR / "text").iterdir() if path.is_dir())
    return tuple(sorted(found, key=lambda name: name != DEFAULT_LANGUAGE))


def language() -> str:
    """The language spoken here and now."""
    return _spoken.get()


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """Within it, :func:`text` speaks this language: in this thread and in what copies its context.

    Raises:
        ValueError: there are no texts in this language.
    """
    if name not in languages():
        raise ValueError(f"no texts in {name!r}; there are: {', '.join(languages())}")
    token = _spoken.set(name)
    try:
        yield
    finally:
        _spoken.reset(token)


@cache
def _own(language: str) -> dict[str, str]:
    flat: dict[str, str] = {}

    def walk(prefix: str, node: object) -> None:
        if isinstance(node, dict):
            for key, child in node.items():
                walk(f"{prefix}.{key}" if prefix else key, child)
        else:
            if prefix in flat:
                raise ValueError(f"the catalogue says {prefix} twice")
            flat[prefix] = str(node)

    for path in sorted((ASSETS_DIR / "text" / language).glob("*.json")):
        walk("", json.loads(path.read_text(encoding="utf-8")))
    return flat


@cache
def _load(language: str) -> dict[str, str]:
    """A language's texts; a sentence that it lacks is said in the default language."""
    return _own(DEFAULT_LANGUAGE) | _own(language)


def text(key: str, language: str | None = None, /, **values: object) -> str:
    """The sentence for ``key`` (dots walk into sections), with ``{name}`` fields filled from ``values``, in
    the language that is spoken. Call it when the sentence is shown: what is kept is kept in one language.

    Raises:
        KeyError: the catalogue has no such key; a missing sentence is a defect, never shown as a blank.
    """
    sentence = _load(language or _spoken.get())[key]
    return sentence.format(**values) if values else sentence


@dataclass(frozen=True, slots=True)
class Phrase:
    """A sentence that is kept and said later, in whatever language is spoken then: ``str`` says it."""

    key: str
    values: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return text(self.key, **self.values)


def phrase(key: str, /, **values: object) -> Phrase:
    """The sentence for ``key``, for whoever reads it later."""
    return Phrase(key, values)


def keys(language: str = DEFAULT_LANGUAGE) -> frozenset[str]:
    """All keys of one language, for the test that languages agree."""
    return frozenset(_own(language))
