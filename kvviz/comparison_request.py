"""What a comparison is asked: configurations, a prompt, and a text to score.

Plain and validated like every setting; knows no model and no page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvviz.config import CacheConfig, RunConfig, SamplingConfig
from kvviz.errors import ConfigError

MAX_CONFIGURATIONS = 4
#: The name of a text that is the prompt itself.
PROMPT_TEXT = "prompt"


@dataclass(frozen=True, slots=True)
class TextSlice:
    """Tokens ``[start, start + length)`` of a named text; rows ``skip .. length - 2`` are counted."""

    name: str
    start: int = 0
    length: int = 1024
    skip: int = 256

    def __post_init__(self) -> None:
        for name, least in (("start", 0), ("length", 2), ("skip", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError("int_minimum", name=name, value=value, minimum=least)
        if self.skip >= self.length - 1:
            raise ConfigError("score_skip", skip=self.skip, tokens=self.length)


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """One to four configurations on one prompt and, if ``text`` is given, on the tokens of one text.

    ``configurations`` are pairs of a name and a cache; the first is what the others part from.
    """

    prompt: str
    configurations: tuple[tuple[str, CacheConfig], ...]
    use_chat_template: bool = True
    max_new_tokens: int = 64
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    chunk_size: int = 256
    text: TextSlice | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.configurations) <= MAX_CONFIGURATIONS:
            raise ConfigError("compare_count", given=len(self.configurations), most=MAX_CONFIGURATIONS)

    @property
    def runs(self) -> tuple[RunConfig, ...]:
        """One generation for each configuration."""
        return tuple(
            RunConfig(
                prompt=self.prompt,
                cache=cache,
                label=label,
                use_chat_template=self.use_chat_template,
                max_new_tokens=self.max_new_tokens,
                sampling=self.sampling,
                chunk_size=self.chunk_size,
            )
            for label, cache in self.configurations
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "prompt": self.prompt,
            "configurations": [
                {"label": label, "cache": cache.to_dict()} for label, cache in self.configurations
            ],
            "use_chat_template": self.use_chat_template,
            "max_new_tokens": self.max_new_tokens,
            "sampling": dataclasses.asdict(self.sampling),
            "chunk_size": self.chunk_size,
            "text": None if self.text is None else dataclasses.asdict(self.text),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> ComparisonRequest:
        """Inverse of :meth:`to_dict`.

        Raises:
            KvvizError: a value that breaks a rule.
            KeyError, TypeError: something that is no request at all.
        """
        values = dict(plain)
        values["configurations"] = tuple(
            (str(pair["label"]), CacheConfig.from_dict(pair["cache"])) for pair in plain["configurations"]
        )
        values["sampling"] = SamplingConfig(**plain["sampling"])
        values["text"] = None if plain["text"] is None else TextSlice(**plain["text"])
        request = cls(**values)
        _ = request.runs  # their own rules hold too
        return request
