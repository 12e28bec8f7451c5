"""Models by their published configurations, and GPUs by their memory, read from ``assets/calculator.json``.

Knows numbers only; no model is loaded. A new model or GPU is an entry there and needs no code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from kvviz.catalogue import ASSETS_DIR
from kvviz.errors import ConfigError

#: What a reader needs to check ``parameters``, and no formula here uses.
_CHECKED_ONLY = {"family", "hidden_size", "intermediate_size", "vocab_size", "tied"}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the bytes of a model and of its KV cache depend on.

    With ``window_tokens`` W, a layer keeps the newest W tokens only; every ``full_every``-th layer keeps all
    of them (0: none does). ``published_weights_bytes``: for checkpoints that are not 16 bits throughout.
    """

    name: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    context_tokens: int
    parameters: int
    window_tokens: int | None = None
    full_every: int = 0
    published_weights_bytes: int | None = None

    def window_of(self, layer: int) -> int | None:
        """Tokens that ``layer`` keeps at most; None when it keeps all."""
        if self.window_tokens is None or (self.full_every and (layer + 1) % self.full_every == 0):
            return None
        return self.window_tokens

    def weights_bytes(self, bits: int | None) -> int:
        """``parameters * bits / 8``; None: the published checkpoint, 16 bits where nothing else is known."""
        if bits is None:
            return self.published_weights_bytes or 2 * self.parameters
        return -(-self.parameters * bits // 8)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU by name and memory."""

    name: str
    gib: int


@cache
def stored() -> dict[str, Any]:
    """The file as it is."""
    plain: dict[str, Any] = json.loads((ASSETS_DIR / "calculator.json").read_text(encoding="utf-8"))
    return plain


@cache
def models() -> tuple[ModelShape, ...]:
    """All models that are offered by name."""
    kept = ({k: v for k, v in entry.items() if k not in _CHECKED_ONLY} for entry in stored()["models"])
    return tuple(ModelShape(**entry) for entry in kept)


@cache
def gpus() -> tuple[Gpu, ...]:
    """All GPUs that are offered by name."""
    return tuple(Gpu(**entry) for entry in stored()["gpus"])


def model(name: str) -> ModelShape:
    """One model.

    Raises:
        ConfigError: no such model; the message lists those that exist.
    """
    found = next((shape for shape in models() if shape.name.lower() == name.strip().lower()), None)
    if found is None:
        raise ConfigError("calc_model", name=name, known=", ".join(shape.name for shape in models()))
    return found


def gpu(name: str) -> Gpu:
    """One GPU.

    Raises:
        ConfigError: no such GPU; the message lists those that exist.
    """
    found = next((card for card in gpus() if card.name.lower() == name.strip().lower()), None)
    if found is None:
        raise ConfigError("calc_gpu", name=name, known=", ".join(card.name for card in gpus()))
    return found
