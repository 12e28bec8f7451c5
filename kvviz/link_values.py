"""The values that a link may carry, each with its text and bounds: numbers, choices, texts, configurations.

Knows settings and characters; does not know a query, a page or a model. Whatever is read is looked up among
what the caller offers or is a bounded number: nothing is opened, run or believed.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import math
import re
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol
from urllib.parse import quote

from kvviz.config import CacheConfig
from kvviz.errors import ConfigError

_PLAIN_CHARACTERS = 600  # a longer text is deflated when that makes it shorter
_PACKED = "~"
_SHOWN_CHARACTERS = 40
_READABLE = ",:=/;.~!()*'"  # allowed in a query as they are (RFC 3986)


@dataclass(frozen=True, slots=True)
class CacheChoice:
    """A configuration as a form holds it: the preset it began with, and what it is now."""

    preset: str
    cache: CacheConfig


class Kind(Protocol):
    """How one value is written and read. ``read`` raises a ``ConfigError`` that names ``key``."""

    def write(self, key: str, value: Any) -> str: ...
    def read(self, key: str, words: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in ``low..high``."""

    low: int
    high: int

    def write(self, key: str, value: Any) -> str:
        """Digits.

        Raises:
            ConfigError: not a whole number in range.
        """
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise ConfigError("link_number", key=key, value=shown(value), low=self.low, high=self.high)
        return str(value)

    def read(self, key: str, words: str) -> int:
        """Inverse of :meth:`write`; no sign, no zeros in front, ASCII digits only."""
        if not re.fullmatch(r"0|[1-9][0-9]{0,15}", words) or not self.low <= int(words) <= self.high:
            raise ConfigError("link_number", key=key, value=shown(words), low=self.low, high=self.high)
        return int(words)


@dataclass(frozen=True, slots=True)
class Number:
    """A decimal number in ``low..high``, exact in both directions."""

    low: float
    high: float

    def write(self, key: str, value: Any) -> str:
        """Shortest digits that mean the same number, never with an exponent.

        Raises:
            ConfigError: not a number in range.
        """
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not self.low <= value <= self.high:
            raise ConfigError("link_number", key=key, value=shown(value), low=self.low, high=self.high)
        words = f"{Decimal(repr(float(value))):f}"
        return self._checked(key, words.rstrip("0").rstrip(".") if "." in words else words)

    def read(self, key: str, words: str) -> float:
        """Inverse of :meth:`write`."""
        return float(self._checked(key, words))

    def _checked(self, key: str, words: str) -> str:
        fits = re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,24})?", words)
        if not fits or not self.low <= float(words) <= self.high:
            raise ConfigError("link_number", key=key, value=shown(words), low=self.low, high=self.high)
        return words


@dataclass(frozen=True, slots=True)
class Flag:
    """``1`` or ``0``."""

    def write(self, key: str, value: Any) -> str:
        """``True`` is ``1``."""
        return "1" if value else "0"

    def read(self, key: str, words: str) -> bool:
        """Inverse of :meth:`write`."""
        if words not in ("0", "1"):
            raise ConfigError("link_choice", key=key, value=shown(words), known="0, 1")
        return words == "1"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of ``options`` and nothing else: names of models, tabs, ready prompts."""

    options: Sequence[str]

    def write(self, key: str, value: Any) -> str:
        """The option.

        Raises:
            ConfigError: it is none.
        """
        return self.read(key, str(value))

    def read(self, key: str, words: str) -> str:
        """Inverse of :meth:`write`."""
        if words not in self.options:
            raise ConfigError("link_choice", key=key, value=shown(words), known=", ".join(self.options))
        return words


@dataclass(frozen=True, slots=True)
class Words:
    """Free text of at most ``longest`` characters, for a person or a model to read and for nothing else.

    Written as it stands, or, when it is long, after ``~`` as base64 of its deflated UTF-8 if that is shorter.
    """

    longest: int

    def write(self, key: str, value: Any) -> str:
        """The text.

        Raises:
            ConfigError: too long, or characters that are none.
        """
        words = self._checked(key, str(value))
        if len(quoted(words)) <= _PLAIN_CHARACTERS and not words.startswith(_PACKED):
            return words
        packed = _PACKED + base64.urlsafe_b64encode(zlib.compress(words.encode(), 9)).decode().rstrip("=")
        shorter = len(packed) < len(quoted(words)) or words.startswith(_PACKED)
        return packed if shorter else words

    def read(self, key: str, words: str) -> str:
        """Inverse of :meth:`write`; never unpacks more than may be there."""
        if not words.startswith(_PACKED):
            return self._checked(key, words)
        body = words.removeprefix(_PACKED)
        try:
            raw = base64.b64decode(body + "=" * (-len(body) % 4), altchars="-_", validate=True)
            unpacker = zlib.decompressobj()
            content = unpacker.decompress(raw, 4 * self.longest + 1)
            whole = unpacker.eof and not unpacker.unused_data
            if not whole and len(content) <= 4 * self.longest:
                raise ConfigError("link_packed", key=key)
            return self._checked(key, content.decode() if whole else "x" * len(content))
        except (binascii.Error, zlib.error, UnicodeDecodeError, ValueError) as error:
            raise ConfigError("link_packed", key=key) from error

    def _checked(self, key: str, words: str) -> str:
        if len(words) > self.longest:
            raise ConfigError("link_text_long", key=key, characters=len(words), most=self.longest)
        _check_characters(key, words, allowed="\n\t")
        return words


#: field of CacheConfig -> its name in a link, the terminal's; other fields have their own names
_SHORT = {"sink_size": "sink", "window_size": "window", "block_size": "block", "overrides": "layers"}
_FIELDS = {_SHORT.get(f.name, f.name): f.name for f in dataclasses.fields(CacheConfig)}
_SIZES = {"sink": Whole(0, 1_000_000), "window": Whole(1, 1_000_000), "block": Whole(1, 65_536)}
_LAYER = Whole(0, 9_999)
_LONGEST_SETTING = 80  # of one value; layers are many


@dataclass(frozen=True, slots=True)
class Cache:
    """A :class:`CacheChoice`: ``full-stack`` is the preset, ``full-stack;window=16;value=none`` what differs.

    Layer overrides are ``layers=0:key/value,7:key/value``, or ``layers=`` when the preset's are gone. A
    preset means what it means to whoever opens the link.
    """

    presets: Mapping[str, CacheConfig]

    def write(self, key: str, value: CacheChoice) -> str:
        """Preset, then the fields that differ, in a fixed order.

        Raises:
            ConfigError: no such preset, or a size that no link carries.
        """
        base, plain = _plain(self._preset(key, value.preset)), _plain(value.cache)
        words = [value.preset]
        for name, place in _FIELDS.items():
            if name in _SIZES:
                _SIZES[name].write(name, plain[place])
            if plain[place] != base[place]:
                words.append(f"{name}={_setting(name, plain[place])}")
        return ";".join(words)

    def read(self, key: str, words: str) -> CacheChoice:
        """Inverse of :meth:`write`, for any order of the fields."""
        preset, *changes = words.split(";")
        plain = self._preset(key, preset).to_dict()
        seen: set[str] = set()
        for change in changes:
            name, equals, value = change.partition("=")
            if name not in _FIELDS or not equals or name in seen:
                raise ConfigError("link_setting", key=key, value=shown(change), known=", ".join(_FIELDS))
            seen.add(name)
            plain[_FIELDS[name]] = _read_setting(key, name, value)
        return CacheChoice(preset, CacheConfig.from_dict(plain))

    def _preset(self, key: str, name: str) -> CacheConfig:
        if name not in self.presets:
            raise ConfigError("link_choice", key=key, value=shown(name), known=", ".join(self.presets))
        return self.presets[name]


def _plain(cache: CacheConfig) -> dict[str, Any]:
    """Every field, also those that ``to_dict`` leaves out while they have their defaults."""
    left_out = {name: str(getattr(cache, name)) for name in _FIELDS.values() if name != "overrides"}
    return {"overrides": []} | left_out | cache.to_dict()


def _setting(name: str, value: Any) -> str:
    if name != "layers":
        return str(value)
    return ",".join(f"{_LAYER.write(name, o['layer'])}:{o['key']}/{o['value']}" for o in value)


def _read_setting(key: str, name: str, words: str) -> Any:
    if name == "layers":
        return _read_layers(key, words)
    if name in _SIZES:
        return _SIZES[name].read(f"{key}: {name}", words)
    if len(words) > _LONGEST_SETTING or not re.fullmatch(r"[A-Za-z0-9_:.,+-]+", words):
        raise ConfigError("link_setting", key=key, value=shown(f"{name}={words}"), known=", ".join(_FIELDS))
    return words


def _read_layers(key: str, words: str) -> list[dict[str, Any]]:
    layers = []
    for line in words.split(",") if words else []:
        layer, colon, sides = line.partition(":")
        k, slash, v = sides.partition("/")
        if not (colon and slash):
            raise ConfigError(
                "link_setting", key=key, value=shown(f"layers={line}"), known=", ".join(_FIELDS)
            )
        number = _LAYER.read(f"{key}: layers", layer)
        layers.append(
            {"layer": number, "key": _read_setting(key, "key", k), "value": _read_setting(key, "value", v)}
        )
    return layers


def quoted(words: str) -> str:
    """Percent-encoded as far as a query needs it."""
    return quote(words, safe=_READABLE)


def shown(value: Any) -> str:
    """Somebody else's words inside a sentence of ours: one short line without control characters."""
    words = "".join(c if c.isprintable() else "\ufffd" for c in str(value)[: _SHOWN_CHARACTERS + 1])
    return words if len(words) <= _SHOWN_CHARACTERS else words[:_SHOWN_CHARACTERS] + "…"


def _check_characters(key: str, words: str, *, allowed: str) -> None:
    for character in words:
        if unicodedata.category(character) in ("Cc", "Cs") and character not in allowed:
            raise ConfigError("link_character", key=key, point=f"U+{ord(character):04X}")
