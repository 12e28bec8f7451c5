"""The words of the page, with what papers and libraries call the same things: a dialog that the header opens.

Order and groups are those of ``assets/glossary.json``, the words those of the catalogue. Knows no component.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from html import escape

from kvviz.catalogue import ASSETS_DIR, text

DIALOG_ID = "kv-glossary"


@dataclass(frozen=True, slots=True)
class Entry:
    """One word, its synonyms, what it means."""

    name: str
    also: str
    means: str


@cache
def order() -> dict[str, list[str]]:
    """Keys of the words by group, in the order in which they are shown."""
    plain: dict[str, list[str]] = json.loads((ASSETS_DIR / "glossary.json").read_text(encoding="utf-8"))
    return plain


def entry(key: str) -> Entry:
    """One word in the language that is spoken."""
    return Entry(*(text(f"glossary.term.{key}.{part}") for part in ("name", "also", "means")))


def dialog() -> str:
    """Markup of the whole glossary; assets/js/glossary.js opens and filters it."""
    groups = "".join(
        f"<section><h3>{_said(f'group.{group}')}</h3><dl>{''.join(map(_row, keys))}</dl></section>"
        for group, keys in order().items()
    )
    return (
        f'<dialog id="{DIALOG_ID}" aria-labelledby="{DIALOG_ID}-title">'
        f'<header><h2 id="{DIALOG_ID}-title">{_said("title")}</h2>'
        f'<button type="button" data-glossary="close">{_said("close")}</button></header>'
        f"<p>{_said('info')}</p>"
        f'<input type="search" aria-label="{_said("filter")}" placeholder="{_said("filter")}">'
        f'<p data-glossary="none" role="status" hidden>{_said("none")}</p>{groups}</dialog>'
    )


def _row(key: str) -> str:
    word = entry(key)
    also = f"<small>{_said('also')}{escape(word.also)}</small>"
    return f"<div><dt>{escape(word.name)}</dt><dd>{escape(word.means)}{also}</dd></div>"


def _said(key: str) -> str:
    return escape(text(f"glossary.{key}"))
