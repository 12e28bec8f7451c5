"""The bytes behind token ids, and how a token is shown. Knows a tokenizer; knows no network.

A token is bytes, not characters: one emoji may be three tokens. Labels joined by their ``raw`` are the text's
UTF-8; what a label displays never shows a tokenizer's private alphabet or a replacement character.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from kvviz.events import TokenLabel

_VISIBLE = {" ": "␠", "\n": "⏎", "\t": "⇥", "\r": "␍"}
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@lru_cache(maxsize=1)
def _byte_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level BPE writes for the 256 bytes, and the bytes they mean."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    alphabet = {chr(byte): byte for byte in plain}
    return alphabet | {chr(256 + n): byte for n, byte in enumerate(others)}


class TokenText:
    """Bytes and labels of one tokenizer's ids."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._byte_level = "ByteLevel" in str(tokenizer.backend_tokenizer.decoder)
        self._added = {i: t.content for i, t in tokenizer.added_tokens_decoder.items()}
        self.special_ids = frozenset(i for i, t in tokenizer.added_tokens_decoder.items() if t.special)

    @property
    def strips_first_space(self) -> bool:
        """True for tokenizers that write a space before the first word and drop it when decoding."""
        return not self._byte_level

    def raw(self, token_id: int) -> bytes:
        """The bytes of one token; a special token's are its name."""
        if token_id in self._added:
            return str(self._added[token_id]).encode("utf-8")
        piece: str | None = self._tokenizer.convert_ids_to_tokens(token_id)
        if piece is None:  # ids past the tokenizer's own, which padded embeddings allow
            return f"<{token_id}>".encode()
        if self._byte_level:
            alphabet = _byte_alphabet()
            return bytes([alphabet[c] for c in str(piece)])
        if match := _BYTE_TOKEN.fullmatch(piece):
            return bytes([int(match[1], 16)])
        return piece.replace("▁", " ").encode("utf-8")

    def labels(self, ids: Sequence[int], *, at_start: bool) -> list[TokenLabel]:
        """One label for each id. ``at_start`` says that ``ids[0]`` begins the text."""
        raws = [self.raw(token_id) for token_id in ids]
        if at_start and raws and self.strips_first_space and ids[0] not in self._added:
            raws[0] = raws[0].removeprefix(b" ")
        return [TokenLabel(display(raw), raw) for raw in raws]


def display(raw: bytes) -> str:
    """``b" world"`` -> ``␠world``; a piece of a character -> its bytes, ``‹E6·9D›``."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "‹" + "·".join(f"{byte:02X}" for byte in raw) + "›"
    return "".join(_show(c) for c in text)


def _show(c: str) -> str:
    if c in _VISIBLE:
        return _VISIBLE[c]
    if c.isprintable() and c != "\ufffd":
        return c
    if ord(c) < 0x20:
        return chr(0x2400 + ord(c))  # the control pictures
    return f"‹U+{ord(c):04X}›"
