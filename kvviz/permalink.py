"""A request as the query of a link, and back: versioned, short, readable where it can be.

Knows which values a tab's links carry and their order; does not know a page, a model, or where a link leads.
A link is all or nothing: one value that cannot be read refuses the whole of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from kvviz.errors import ConfigError
from kvviz.link_values import Choice, Kind, quoted, shown

VERSION = 1
#: A longer address does not pass every server and every chat.
MOST_CHARACTERS = 7_500
#: Keys that belong to the page itself, beside any request. The host's begin with two underscores.
PAGE_KEYS = frozenset({"lang", "view"})
_MOST_KEYS = 64


@dataclass(frozen=True)
class LinkForm:
    """What the links of one tab may carry: key -> kind, in the order in which they are written.

    ``tabs`` are all tabs that have links, so that a link for another one is told from a wrong one; a link
    without a tab is for the first.
    """

    tab: str
    kinds: Mapping[str, Kind]
    tabs: Sequence[str] = field(default=())

    def encode(self, values: Mapping[str, Any]) -> str:
        """The query, without ``?``; keys that are absent or None are not in it.

        Raises:
            ConfigError: a value that no link carries, or more than fits into an address.
        """
        unknown = [key for key in values if key not in self.kinds]
        if unknown:
            raise ConfigError("link_key", key=shown(unknown[0]), known=", ".join(self.kinds))
        pairs = [("v", str(VERSION)), ("tab", self.tab)]
        pairs += [
            (key, kind.write(key, values[key]))
            for key, kind in self.kinds.items()
            if values.get(key) is not None
        ]
        query = "&".join(f"{key}={quoted(words)}" for key, words in pairs)
        if len(query) > MOST_CHARACTERS:
            raise ConfigError("link_too_long", characters=len(query), most=MOST_CHARACTERS)
        return query

    def is_named(self, query: str) -> bool:
        """Whether a query, readable or not, says that it is one of this tab."""
        return re.search(rf"(?:^|[?&])tab={re.escape(self.tab)}(?:&|$)", query) is not None

    def decode(self, query: str) -> dict[str, Any] | None:
        """The values that a query gives; None when it is no link, or one of another tab.

        Raises:
            ConfigError: a link that cannot be read as a whole, with the rule, in one sentence.
        """
        pairs = read_query(query)
        if pairs is None:
            return None
        tabs = self.tabs or (self.tab,)
        tab = Choice(tabs).read("tab", pairs.pop("tab", tabs[0]))
        if tab != self.tab:
            return None
        for key in pairs:
            if key not in self.kinds:
                raise ConfigError("link_key", key=shown(key), known=", ".join(self.kinds))
        return {key: kind.read(key, pairs[key]) for key, kind in self.kinds.items() if key in pairs}


def read_query(query: str) -> dict[str, str] | None:
    """The pairs of a link without its version and without the page's own keys; None when it is no link.

    Raises:
        ConfigError: another version, a key given twice, too long, or bytes that are no text.
    """
    query = query.removeprefix("?")
    if len(query) > MOST_CHARACTERS:
        raise ConfigError("link_too_long", characters=len(query), most=MOST_CHARACTERS)
    try:
        found = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_KEYS)
    except ValueError as error:  # also what UTF-8 refuses
        raise ConfigError("link_unreadable") from error
    pairs: dict[str, str] = {}
    for key, words in found:
        if key in PAGE_KEYS or key.startswith("__"):
            continue
        if key in pairs:
            raise ConfigError("link_twice", key=shown(key))
        pairs[key] = words
    if "v" not in pairs:
        return None
    if pairs.pop("v") != str(VERSION):
        raise ConfigError("link_version", found=shown(dict(found)["v"]), known=VERSION)
    return pairs
