"""Texts to score: the built-in corpus, or a file. A text is identified by its hash, not by its name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from pydoc_data.topics import topics

from kvviz.catalogue import ASSETS_DIR
from kvviz.errors import ConfigError

PYDOC_TOPICS = "pydoc-topics"
#: texts of our own, by name
OWN_TEXTS = ("chat", "code", "math")
NAMED_TEXTS = (PYDOC_TOPICS, *OWN_TEXTS)


@dataclass(frozen=True, slots=True)
class Corpus:
    """A text and the SHA-256 (hex) of its UTF-8."""

    name: str
    text: str
    sha256: str


def load_text(name: str) -> Corpus:
    """``pydoc-topics`` (all topics of Python's own documentation, sorted, joined by a blank line) or a file.

    Raises:
        ConfigError: the file cannot be read as UTF-8 text.
    """
    if name == PYDOC_TOPICS:
        text = "\n\n".join(topics[key] for key in sorted(topics))
    else:
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("text_unreadable", path=name, reason=_reason(error)) from error
    return text_of(name, text)


def named_text(name: str) -> Corpus:
    """One of :data:`NAMED_TEXTS`, and nothing else: a name that comes from a page opens no file.

    Raises:
        ConfigError: another name.
    """
    if name == PYDOC_TOPICS:
        return load_text(name)
    if name not in OWN_TEXTS:
        raise ConfigError("unknown_choice", name="text", value=name, choices=", ".join(NAMED_TEXTS))
    return replace(load_text(str(ASSETS_DIR / "texts" / f"{name}.txt")), name=name)


def text_of(name: str, content: str) -> Corpus:
    """A text that is at hand."""
    return Corpus(name, content, hashlib.sha256(content.encode("utf-8")).hexdigest())


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "not UTF-8"
