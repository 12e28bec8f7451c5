"""Errors meant for people: each states the rule, the value that broke it, and what to do.

The sentence itself lives in the catalogue under ``error.<code>``; this module only binds values to it. It is
said in the language that is spoken where ``str`` asks for it, not where the error arose.
"""

from __future__ import annotations

from kvviz.catalogue import text


class KvvizError(Exception):
    """A refusal that a person can act on. ``code`` names the sentence, ``values`` fill it."""

    #: where in the catalogue its sentences lie
    section = "error"

    def __init__(self, code: str, **values: object) -> None:
        self.code = code
        self.values = values
        super().__init__(text(f"{self.section}.{code}", **values))  # now: a missing sentence is a defect

    def __str__(self) -> str:
        return text(f"{self.section}.{self.code}", **self.values)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.code, self.values))


def _rebuild(kind: type[KvvizError], code: str, values: dict[str, object]) -> KvvizError:
    return kind(code, **values)


class ConfigError(KvvizError):
    """What was asked for contradicts itself or the model."""


class ModelError(KvvizError):
    """A model cannot be found, loaded, or run through this cache."""
