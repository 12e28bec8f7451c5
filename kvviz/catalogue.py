"""Every sentence a person reads, looked up by key from ``assets/text/<language>/*.json``.

This module does not know who asks or where the text is shown.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

ASSETS_DIR = Path(__file__).resolve().parent.parent / "assets"
DEFAULT_LANGUAGE = "en"


@cache
def _load(language: str) -> dict[str, str]:
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


def text(key: str, language: str | None = None, /, **values: object) -> str:
    """The sentence for ``key`` (dots walk into sections), with ``{name}`` fields filled from ``values``.

    Raises:
        KeyError: the catalogue has no such key; a missing sentence is a defect, never shown as a blank.
    """
    sentence = _load(language or DEFAULT_LANGUAGE)[key]
    return sentence.format(**values) if values else sentence


def keys(language: str = DEFAULT_LANGUAGE) -> frozenset[str]:
    """All keys of one language, for the test that languages agree."""
    return frozenset(_load(language))
