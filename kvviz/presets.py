"""Ready configurations and prompts, read from ``assets``: a new preset needs no code.

Knows settings by name; does not know a model or where a preset is shown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from kvviz.catalogue import ASSETS_DIR, text
from kvviz.config import CacheConfig
from kvviz.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PromptPreset:
    """A prompt to start from."""

    key: str
    text: str
    use_chat_template: bool

    @property
    def label(self) -> str:
        """How it is called."""
        return text(f"prompt.{self.key}")


@cache
def _stored() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((ASSETS_DIR / "presets.json").read_text(encoding="utf-8"))
    return stored


def preset_names() -> list[str]:
    """All presets, from the plainest to the full stack."""
    return list(_stored()["caches"])


def preset(name: str) -> CacheConfig:
    """The settings of one preset.

    Raises:
        ConfigError: no such preset; the message lists those that exist.
    """
    if name not in preset_names():
        raise ConfigError("preset_unknown", name=name, known=", ".join(preset_names()))
    return CacheConfig.from_dict(_stored()["caches"][name])


def preset_label(name: str) -> str:
    """How a preset is called."""
    return text(f"preset.{name}.label")


def preset_note(name: str) -> str:
    """One sentence on what a preset shows."""
    return text(f"preset.{name}.note")


def prompt_presets() -> list[PromptPreset]:
    """The prompts to start from; the first is the one the page opens with."""
    folder = ASSETS_DIR / "prompts"
    return [
        PromptPreset(
            key=entry["key"],
            text=(folder / entry["file"]).read_text(encoding="utf-8").strip("\n"),
            use_chat_template=entry["chat"],
        )
        for entry in _stored()["prompts"]
    ]
