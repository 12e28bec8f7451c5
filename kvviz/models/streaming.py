"""Text as it is generated: bytes wait until their character is complete. Knows no network and no cache."""

from __future__ import annotations

import codecs
from typing import Protocol

from kvviz.models.tokens import TokenText


class HasTokenText(Protocol):
    """Whoever can say what bytes a token is."""

    @property
    def token_text(self) -> TokenText: ...


class ByteStreamer:
    """Token ids in, finished characters out; joined, they equal one decode of all ids.

    Special tokens (an end-of-sequence marker, say) are no text.
    """

    def __init__(self, model: HasTokenText) -> None:
        self._text = model.token_text
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at_start = True

    def push(self, token_id: int) -> str:
        """The characters that this token completes; often the empty string."""
        if token_id in self._text.special_ids:
            return ""
        raw = self._text.raw(token_id)
        if self._at_start and self._text.strips_first_space:
            raw = raw.removeprefix(b" ")
        self._at_start = False
        return self._decoder.decode(raw)

    def flush(self) -> str:
        """What is left of a character that was never finished."""
        return self._decoder.decode(b"", final=True)
