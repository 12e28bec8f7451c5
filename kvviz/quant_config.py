"""The quantizer of one side (K or V) as text and as frozen fields.

Knows the grammar and its rules; does not know a tensor, a cache or a model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kvviz.errors import ConfigError

GROUP_SIZES = (16, 32, 64, 128)
INTEGER_BITS = (8, 4, 3, 2)
#: codecs whose codes are not integers -> bits of a code
_FLOATS = {"nf4": 4, "fp8": 8}
#: codec -> fields that its text form must have
_REQUIRED = {"int": {"axis", "mapping"}, "nf4": {"axis"}, "fp8": set[str]()}


class Axis(StrEnum):
    """Which values share one scale."""

    TOKEN = "token"  # consecutive channels inside one token
    CHANNEL = "channel"  # consecutive tokens of one channel
    HEAD = "head"  # one head of one sealed block
    TENSOR = "tensor"  # one sealed block


class Mapping(StrEnum):
    """How a group's range becomes codes."""

    ABSMAX = "absmax"
    MINMAX = "minmax"


@dataclass(frozen=True, slots=True)
class QuantConfig:
    """One side (K or V) of a sealed block.

    Text form: ``none``, ``fp8[:axis[:gN]]``, ``nf4:<axis>[:gN]`` or ``int<bits>:<axis>[:gN]:<mapping>``,
    each but ``none`` with ``:m32`` for 32-bit metadata.
    """

    codec: str = "none"  # none | int | nf4 | fp8
    bits: int = 16
    axis: Axis = Axis.TENSOR
    group_size: int | None = None
    mapping: Mapping = Mapping.ABSMAX
    metadata_bits: int = 16

    def __post_init__(self) -> None:
        if self.codec not in ("none", "int", "nf4", "fp8"):
            raise ConfigError("quant_spec", spec=self.codec)
        if self.codec == "none":
            return
        if self.codec == "int" and self.bits not in INTEGER_BITS:
            raise ConfigError("quant_bits", bits=self.bits)
        if self.metadata_bits not in (16, 32):
            raise ConfigError("quant_metadata", bits=self.metadata_bits)
        grouped = self.axis in (Axis.TOKEN, Axis.CHANNEL)
        if grouped and (self.group_size is None or self.group_size < 1):
            raise ConfigError("quant_group_missing", axis=self.axis.value)
        if not grouped and self.group_size is not None:
            raise ConfigError("quant_group_unused", axis=self.axis.value)

    @property
    def is_none(self) -> bool:
        """True when this side is stored exactly."""
        return self.codec == "none"

    @property
    def spec(self) -> str:
        """The canonical text form; ``parse(spec) == self``."""
        if self.codec == "none":
            return "none"
        fields = [f"int{self.bits}" if self.codec == "int" else self.codec]
        if self.codec != "fp8" or self.axis is not Axis.TENSOR:
            fields.append(self.axis.value)
        if self.group_size is not None:
            fields.append(f"g{self.group_size}")
        if self.codec == "int":
            fields.append(self.mapping.value)
        if self.metadata_bits != 16:
            fields.append(f"m{self.metadata_bits}")
        return ":".join(fields)

    @classmethod
    def parse(cls, spec: str) -> QuantConfig:
        """Read a text form.

        Raises:
            ConfigError: the text is no quantizer this version knows, with the rule in the message.
        """
        spec = spec.strip().lower()
        if spec == "none":
            return cls()
        if "+" in spec:
            raise ConfigError("quant_modifier", spec=spec)
        head, *rest = spec.split(":")
        values: dict[str, Any] = {}
        if head in _FLOATS:
            values.update(codec=head, bits=_FLOATS[head])
        elif match := re.fullmatch(r"int(\d+)", head):
            values.update(codec="int", bits=int(match[1]))
        else:
            raise ConfigError("quant_spec", spec=spec)
        for item in rest:
            name, value = _quant_field(item, spec)
            if name in values:
                raise ConfigError("quant_spec", spec=spec)
            values[name] = value
        if not _REQUIRED[values["codec"]] <= values.keys():
            raise ConfigError("quant_spec", spec=spec)
        if head in _FLOATS and values.get("mapping") is Mapping.MINMAX:
            raise ConfigError("quant_mapping", spec=spec, codec=head)
        return cls(**values)

    def check_shape(self, side: str, head_dim: int, block_size: int) -> None:
        """Refuse a group that does not divide what it lies along.

        Raises:
            ConfigError: names the side, the group and the sizes that fit.
        """
        if self.group_size is None:
            return
        length = head_dim if self.axis is Axis.TOKEN else block_size
        along = "head_dim" if self.axis is Axis.TOKEN else "block_size"
        if length % self.group_size:
            fits = ", ".join(str(g) for g in divisors(length)) or "-"
            raise ConfigError(
                "quant_group", side=side, group=self.group_size, along=along, length=length, fits=fits
            )


def _quant_field(item: str, spec: str) -> tuple[str, Any]:
    if item in {a.value for a in Axis}:
        return "axis", Axis(item)
    if item in {m.value for m in Mapping}:
        return "mapping", Mapping(item)
    if match := re.fullmatch(r"g(\d+)", item):
        return "group_size", int(match[1])
    if item in ("m16", "m32"):
        return "metadata_bits", int(item[1:])
    raise ConfigError("quant_spec", spec=spec)


def divisors(length: int) -> list[int]:
    """The group sizes offered for ``length`` values: only those that divide it."""
    return [g for g in GROUP_SIZES if g <= length and length % g == 0]
