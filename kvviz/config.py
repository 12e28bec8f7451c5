"""What was asked: frozen settings, validated on construction, with a text form for every quantizer.

These objects do not know a model; checks that need one (does a group divide *this* head_dim?) are in
:meth:`CacheConfig.check_model`, which takes plain integers. A run never changes its settings.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kvviz.errors import ConfigError
from kvviz.offload_config import Offload, OffloadRead
from kvviz.quant_config import QuantConfig

__all__ = [
    "CacheConfig", "LayerOverride", "Middle", "Offload", "OffloadRead", "Position", "Prefill", "RunConfig",
    "SamplingConfig", "parse_choice",
]  # fmt: skip


class Middle(StrEnum):
    """What happens to tokens that are neither sink nor window."""

    KEEP = "keep"
    EVICT = "evict"
    QUANTIZE = "quantize"


class Position(StrEnum):
    """Where a key stands after eviction: where the text put it, or counted inside the cache."""

    ORIGINAL = "original"
    IN_CACHE = "in_cache"


class Prefill(StrEnum):
    """Whether prompt rows obey the cache rule row by row, or see exact keys."""

    STREAMED = "streamed"
    EXACT = "exact"


@dataclass(frozen=True, slots=True)
class LayerOverride:
    """Other quantizers for one layer. Visible sets stay those of the whole cache."""

    layer: int
    key: QuantConfig
    value: QuantConfig


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Where each token's K and V live. Semantics: README, "What the cache means"."""

    sink_size: int = 4
    window_size: int = 128
    middle: Middle = Middle.KEEP
    block_size: int = 64
    key: QuantConfig = field(default_factory=QuantConfig)
    value: QuantConfig = field(default_factory=QuantConfig)
    position: Position = Position.ORIGINAL
    offload: Offload = Offload.NONE
    prefill: Prefill = Prefill.STREAMED
    overrides: tuple[LayerOverride, ...] = ()
    offload_read: OffloadRead = OffloadRead.PREFETCH

    def __post_init__(self) -> None:
        _check_int("sink_size", self.sink_size, minimum=0)
        _check_int("window_size", self.window_size, minimum=1)
        _check_int("block_size", self.block_size, minimum=1)
        if self.prefill is Prefill.EXACT and self.middle is Middle.EVICT:
            raise ConfigError("prefill_exact_evict")
        if not self.offload.is_none and self.middle is not Middle.QUANTIZE:
            raise ConfigError("offload_needs_blocks", middle=self.middle.value)
        if len({o.layer for o in self.overrides}) != len(self.overrides):
            raise ConfigError("override_twice")
        for value in (self.value, *(o.value for o in self.overrides)):
            if value.prerotary:
                raise ConfigError("prerotary_value", spec=value.spec)

    def side(self, layer: int, side: str) -> QuantConfig:
        """The quantizer of ``side`` ("key" or "value") in ``layer``."""
        for override in self.overrides:
            if override.layer == layer:
                return override.key if side == "key" else override.value
        return self.key if side == "key" else self.value

    def check_model(
        self,
        *,
        n_layers: int,
        head_dim: int,
        in_cache_refusal: str | None = None,
        calibrated: bool = False,
    ) -> None:
        """Refuse what this model cannot do, before anything runs.

        Raises:
            ConfigError: a group that does not divide, an override for a layer that is not there, or
                ``in_cache`` positions or keys before rotary on a model whose rotary positions cannot be moved
                for the reason that ``in_cache_refusal`` gives; or a quantizer that needs a calibration, when
                there is none (not ``calibrated``).
        """
        for override in self.overrides:
            if not 0 <= override.layer < n_layers:
                raise ConfigError("override_layer", layer=override.layer, n_layers=n_layers)
        if self.middle is Middle.QUANTIZE:
            for layer in range(n_layers):
                for side in ("key", "value"):
                    self.side(layer, side).check_shape(side, head_dim, self.block_size)
                    if self.side(layer, side).needs_calibration and not calibrated:
                        raise ConfigError("calibration_missing", spec=self.side(layer, side).spec)
                if self.side(layer, "key").prerotary and in_cache_refusal:
                    raise ConfigError("prerotary_refused", reason=in_cache_refusal)
        if self.position is Position.IN_CACHE and in_cache_refusal:
            raise ConfigError("in_cache_refused", reason=in_cache_refusal)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; quantizers as spec strings."""
        plain: dict[str, Any] = {
            "sink_size": self.sink_size,
            "window_size": self.window_size,
            "middle": self.middle.value,
            "block_size": self.block_size,
            "key": self.key.spec,
            "value": self.value.spec,
            "position": self.position.value,
            "offload": self.offload.spec,
            "prefill": self.prefill.value,
        }
        if self.offload_read is not OffloadRead.PREFETCH:
            plain["offload_read"] = self.offload_read.value
        if self.overrides:
            plain["overrides"] = [
                {"layer": o.layer, "key": o.key.spec, "value": o.value.spec} for o in self.overrides
            ]
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> CacheConfig:
        """Inverse of :meth:`to_dict`; missing fields take their defaults.

        Raises:
            ConfigError: an unknown field or value.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        for name in plain:
            if name not in known:
                raise ConfigError("unknown_field", name=name, known=", ".join(sorted(known)))
        values = dict(plain)
        for name, kind in _CHOICES.items():
            if name in values:
                values[name] = parse_choice(name, values[name], kind)
        for name in ("key", "value"):
            if name in values:
                values[name] = QuantConfig.parse(str(values[name]))
        if "offload" in values:
            values["offload"] = Offload.parse(str(values["offload"]))
        values["overrides"] = tuple(
            LayerOverride(o["layer"], QuantConfig.parse(o["key"]), QuantConfig.parse(o["value"]))
            for o in plain.get("overrides", ())
        )
        return cls(**values)


_CHOICES: dict[str, type[StrEnum]] = {
    "middle": Middle,
    "position": Position,
    "offload_read": OffloadRead,
    "prefill": Prefill,
}


def parse_choice(name: str, value: object, kind: type[StrEnum]) -> StrEnum:
    """One of an enum's values by its text.

    Raises:
        ConfigError: names the field and lists the choices.
    """
    try:
        return kind(str(value))
    except ValueError:
        choices = ", ".join(item.value for item in kind)
        raise ConfigError("unknown_choice", name=name, value=value, choices=choices) from None


def _check_int(name: str, value: object, *, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigError("int_minimum", name=name, value=value, minimum=minimum)


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """``temperature == 0`` is greedy; otherwise softmax sampling with a seed."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 5:
            raise ConfigError("range", name="temperature", value=self.temperature, low=0, high=5)
        if not 0 < self.top_p <= 1:
            raise ConfigError("range", name="top_p", value=self.top_p, low="0 (exclusive)", high=1)
        _check_int("seed", self.seed, minimum=0)


#: of a prompt that a run reads at a time: larger ones make products faster, but looking at them slower
PROMPT_CHUNK_TOKENS = 256


@dataclass(frozen=True, slots=True)
class RunConfig:
    """One generation: which prompt, through which cache, for how long."""

    prompt: str
    cache: CacheConfig = field(default_factory=CacheConfig)
    label: str = ""
    use_chat_template: bool = True
    max_new_tokens: int = 64
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    chunk_size: int = PROMPT_CHUNK_TOKENS

    def __post_init__(self) -> None:
        _check_int("max_new_tokens", self.max_new_tokens, minimum=1)
        _check_int("chunk_size", self.chunk_size, minimum=1)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = dataclasses.asdict(self)
        plain["cache"] = self.cache.to_dict()
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> RunConfig:
        """Inverse of :meth:`to_dict`."""
        values = dict(plain)
        values["cache"] = CacheConfig.from_dict(plain["cache"])
        values["sampling"] = SamplingConfig(**plain["sampling"])
        return cls(**values)
