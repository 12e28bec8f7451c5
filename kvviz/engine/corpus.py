"""Texts to score: the built-in corpus, or a file. A text is identified by its hash, not by its name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

from kvviz.errors import ConfigError

PYDOC_TOPICS = "pydoc-topics"


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
    return Corpus(name, text, hashlib.sha256(text.encode("utf-8")).hexdigest())


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "not UTF-8"
