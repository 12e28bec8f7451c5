"""The visible text of a run, split where it parts from another.

Knows token ids and raw bytes; does not know how a token was chosen.
"""

from __future__ import annotations

import codecs
from typing import TypedDict

from kvviz.record import RunRecord


class TextSegments(TypedDict):
    """``before + marked + after`` is the visible text."""

    before: str
    marked: str
    after: str


def text_segments(record: RunRecord, divergence: int | None) -> TextSegments:
    """Split the visible text at generated token ``divergence``.

    Every character that the token has a byte of is marked; a special token has none in the text, so its mark
    is empty.
    """
    labels = record.labels[len(record.prompt_ids) :]
    if divergence is None or not 0 <= divergence < len(labels):
        return {"before": record.text, "marked": "", "after": ""}
    start, stop = _token_range(record.text, [label.raw for label in labels], divergence)
    return {"before": record.text[:start], "marked": record.text[start:stop], "after": record.text[stop:]}


def _token_range(visible: str, raws: list[bytes], wanted: int) -> tuple[int, int]:
    """Characters ``[start, stop)`` of ``visible`` that token ``wanted`` has a byte of."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    place = 0
    start: int | None = None
    for index, raw in enumerate(raws):
        before = decoder.getstate()
        if index == wanted:
            start = place
        characters = decoder.decode(raw)
        if place == 0 and raw.startswith(b" ") and not visible.startswith(characters):
            decoder.setstate(before)  # some tokenizers drop the space before the first word
            characters = decoder.decode(raw[1:])
        if not visible.startswith(characters, place):  # a special token: its bytes are not in the text
            decoder.setstate(before)
            if index == wanted:
                return place, place
            continue
        place += len(characters)
        pending = bool(decoder.getstate()[0])
        if start is not None and (not pending or (index > wanted and characters)):
            return start, place
    return (len(visible) if start is None else start), len(visible)
