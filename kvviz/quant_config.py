"""The quantizer of one side (K or V) as text and as frozen fields.

Knows the grammar and its rules; does not know a tensor, a cache or a model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any

from kvviz.errors import ConfigError

GROUP_SIZES = (16, 32, 64, 128)
INTEGER_BITS = (8, 4, 3, 2)
CODEBOOK_BITS = (4, 3, 2)
MAX_OUTLIER_PERCENT = 50
DEFAULT_GUARD_PERCENT = 1.0
MIN_HADAMARD_BLOCK = 16  # fewer channels spread a large one too little
#: codecs whose codes are not integers -> bits of a code
_FLOATS = {"nf4": 4, "fp8": 8}
#: codec -> fields that its text form must have
_REQUIRED = {"int": {"axis", "mapping"}, "nf4": {"axis"}, "fp8": set[str](), "nuq": {"axis"}}


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

    Text form: ``none``, ``fp8[:axis[:gN]]``, ``nf4:<axis>[:gN]``, ``nuq<bits>:<axis>[:gN]`` (values by
    k-means) or ``int<bits>:<axis>[:gN]:<mapping>``, each but ``none`` with ``:m32`` for 32-bit metadata, then
    modifiers in the order in which they meet exact values: ``+prerotary`` (keys only), ``+outliersP``,
    ``+hadamard``, ``+static``, ``+guard[P]``.
    """

    codec: str = "none"  # none | int | nf4 | fp8 | nuq
    bits: int = 16
    axis: Axis = Axis.TENSOR
    group_size: int | None = None
    mapping: Mapping = Mapping.ABSMAX
    metadata_bits: int = 16
    prerotary: bool = False
    outlier_percent: float = 0.0  # 0: none are kept apart
    hadamard: bool = False
    static: bool = False  # scales from a calibration text
    guard_percent: float = 0.0  # 0: what lies outside static scales is clipped

    def __post_init__(self) -> None:
        if self.codec not in ("none", *_REQUIRED):
            raise ConfigError("quant_spec", spec=self.codec)
        if self.codec == "none":
            if self._modifiers:
                raise ConfigError("quant_none_modifier", modifiers=self._modifiers)
            return
        if not 0 <= self.outlier_percent <= MAX_OUTLIER_PERCENT:
            raise ConfigError("quant_outliers", percent=self.outlier_percent, most=MAX_OUTLIER_PERCENT)
        if self.codec == "int" and self.bits not in INTEGER_BITS:
            raise ConfigError("quant_bits", bits=self.bits)
        self._check_calibrated()
        if self.metadata_bits not in (16, 32):
            raise ConfigError("quant_metadata", bits=self.metadata_bits)
        grouped = self.axis in (Axis.TOKEN, Axis.CHANNEL)
        if grouped and (self.group_size is None or self.group_size < 1):
            raise ConfigError("quant_group_missing", axis=self.axis.value)
        if not grouped and self.group_size is not None:
            raise ConfigError("quant_group_unused", axis=self.axis.value)

    def _check_calibrated(self) -> None:
        if self.codec == "nuq" and self.bits not in CODEBOOK_BITS:
            raise ConfigError("quant_nuq_bits", bits=self.bits)
        if self.codec == "nuq" and self.mapping is not Mapping.MINMAX:
            raise ConfigError("quant_nuq_mapping", spec=self.spec)
        if not self.guard_percent:
            return
        if not 0 < self.guard_percent <= MAX_OUTLIER_PERCENT:
            raise ConfigError("quant_outliers", percent=self.guard_percent, most=MAX_OUTLIER_PERCENT)
        if not self.static or self.outlier_percent:
            raise ConfigError("quant_guard", spec=self.spec)

    @property
    def needs_calibration(self) -> bool:
        """True when this side cannot be made without having read a calibration text."""
        return self.static or self.codec == "nuq"

    @property
    def is_none(self) -> bool:
        """True when this side is stored exactly."""
        return self.codec == "none"

    @property
    def spec(self) -> str:
        """The canonical text form; ``parse(spec) == self``."""
        if self.codec == "none":
            return "none"
        fields = [f"{self.codec}{self.bits}" if self.codec in ("int", "nuq") else self.codec]
        if self.codec != "fp8" or self.axis is not Axis.TENSOR:
            fields.append(self.axis.value)
        if self.group_size is not None:
            fields.append(f"g{self.group_size}")
        if self.codec == "int":
            fields.append(self.mapping.value)
        if self.metadata_bits != 16:
            fields.append(f"m{self.metadata_bits}")
        return ":".join(fields) + self._modifiers

    @property
    def _modifiers(self) -> str:
        """The canonical end of the text form."""
        names = ["prerotary"] if self.prerotary else []
        names += [f"outliers{_percent(self.outlier_percent)}"] if self.outlier_percent else []
        names += ["hadamard"] if self.hadamard else []
        names += ["static"] if self.static else []
        names += [f"guard{_percent(self.guard_percent)}"] if self.guard_percent else []
        return "".join(f"+{name}" for name in names)

    def outliers_of(self, size: int) -> int:
        """How many of ``size`` values that share a scale are kept apart: at least 1, half to even."""
        return _share(self.outlier_percent, size)

    def guarded_of(self, size: int) -> int:
        """How many of ``size`` values of a head's block the guard can store exactly: at least 1."""
        return _share(self.guard_percent, size)

    @classmethod
    def parse(cls, spec: str) -> QuantConfig:
        """Read a text form.

        Raises:
            ConfigError: the text is no quantizer this version knows, with the rule in the message.
        """
        spec = spec.strip().lower()
        base, *modifiers = (part.strip() for part in spec.split("+"))
        values = _parse_base(base, spec) if base != "none" else {}
        for item in modifiers:
            name, value = _modifier(item, spec)
            if name in values:
                raise ConfigError("quant_modifier_twice", spec=spec, modifier=item)
            values[name] = value
        return cls(**values)

    def check_shape(self, side: str, head_dim: int, block_size: int) -> None:
        """Refuse a group that does not divide what it lies along, and a transform without enough channels.

        Raises:
            ConfigError: names the side, the group and the sizes that fit, or the transform's block.
        """
        if self.hadamard and (block := hadamard_block(head_dim)) < MIN_HADAMARD_BLOCK:
            raise ConfigError(
                "quant_hadamard", side=side, head_dim=head_dim, block=block, least=MIN_HADAMARD_BLOCK
            )
        if self.group_size is None:
            return
        length = head_dim if self.axis is Axis.TOKEN else block_size
        along = "head_dim" if self.axis is Axis.TOKEN else "block_size"
        if length % self.group_size:
            fits = ", ".join(str(g) for g in divisors(length)) or "-"
            raise ConfigError(
                "quant_group", side=side, group=self.group_size, along=along, length=length, fits=fits
            )


def _parse_base(base: str, spec: str) -> dict[str, Any]:
    """Fields of a text form without its modifiers."""
    head, *rest = base.split(":")
    values: dict[str, Any] = {}
    if head in _FLOATS:
        values.update(codec=head, bits=_FLOATS[head])
    elif match := re.fullmatch(r"(int|nuq)(\d+)", head):
        values.update(codec=match[1], bits=int(match[2]))
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
    if values["codec"] == "nuq":
        values.setdefault("mapping", Mapping.MINMAX)
    return values


def _modifier(item: str, spec: str) -> tuple[str, Any]:
    """The field and value of one modifier."""
    if item in ("prerotary", "hadamard", "static"):
        return item, True
    if item == "guard":
        return "guard_percent", DEFAULT_GUARD_PERCENT
    if match := re.fullmatch(r"guard(\d+(?:\.\d+)?)", item):
        if not float(match[1]):
            raise ConfigError("quant_outliers", percent=match[1], most=MAX_OUTLIER_PERCENT)
        return "guard_percent", float(match[1])
    if match := re.fullmatch(r"outliers(\d+(?:\.\d+)?)", item):
        if not float(match[1]):
            raise ConfigError("quant_outliers", percent=match[1], most=MAX_OUTLIER_PERCENT)
        return "outlier_percent", float(match[1])
    raise ConfigError("quant_modifier", spec=spec, modifier=item)


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


def _percent(percent: float) -> str:
    """``1.0`` -> ``1``, never with an exponent."""
    words = f"{Decimal(str(percent)):f}"
    return words.rstrip("0").rstrip(".") if "." in words else words


def _share(percent: float, size: int) -> int:
    """``percent`` of ``size`` values: at least 1, half to even; 0 of 0 percent."""
    return max(1, round(Fraction(str(percent)) * size / 100)) if percent else 0


def divisors(length: int) -> list[int]:
    """The group sizes offered for ``length`` values: only those that divide it."""
    return [g for g in GROUP_SIZES if g <= length and length % g == 0]


def hadamard_block(head_dim: int) -> int:
    """Channels that the transform of ``+hadamard`` mixes: the largest power of two that divides."""
    return head_dim & -head_dim
