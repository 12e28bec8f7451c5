"""Where sealed blocks live, as text and as frozen fields: device, host and disk, each up to a capacity.

Knows the grammar and counts tokens; knows no tensor, no file and no model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from kvviz.errors import ConfigError

_UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_SHARE = re.compile(r"(device|host|disk)(?::(\d{1,15})(t|b|kib|mib|gib))?", re.IGNORECASE)


class Place(StrEnum):
    """A kind of memory, from the nearest to the farthest."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"


class OffloadRead(StrEnum):
    """How blocks that are not on the device are read: their codes are brought back while the layer before
    computes, or the host computes its part of the attention and hands over output and log-sum-exp."""

    PREFETCH = "prefetch"
    ON_HOST = "on_host"


@dataclass(frozen=True, slots=True)
class TierShare:
    """One place and what it may hold: ``tokens`` of each layer, or ``n_bytes`` over all layers; neither is
    no limit."""

    place: Place
    tokens: int | None = None
    n_bytes: int | None = None

    @property
    def is_limited(self) -> bool:
        """True when there is a capacity."""
        return self.tokens is not None or self.n_bytes is not None

    @property
    def spec(self) -> str:
        """``host``, ``device:512t`` or ``host:64MiB``."""
        if self.tokens is not None:
            return f"{self.place.value}:{self.tokens}t"
        if self.n_bytes is None:
            return self.place.value
        unit, size = next((unit, size) for unit, size in _UNITS.items() if self.n_bytes % size == 0)
        return f"{self.place.value}:{self.n_bytes // size}{unit}"

    def most_tokens(self, block_size: int, block_bytes: int) -> int | None:
        """Tokens of each layer that fit, in whole blocks; a block takes ``block_bytes`` over all layers."""
        if self.tokens is not None:
            return self.tokens // block_size * block_size
        return None if self.n_bytes is None else self.n_bytes // max(1, block_bytes) * block_size


@dataclass(frozen=True, slots=True)
class Offload:
    """Places of sealed blocks, filled in order and never left again: every row reads every sealed block, so
    moving a block later would move more bytes than it could save.

    Text form: ``none`` (all on the device), ``host``, ``disk``, or places in the order device, host, disk,
    all but the last with a capacity: ``host:64MiB,disk``, ``device:512t,host`` (``t``: tokens of each layer).
    """

    shares: tuple[TierShare, ...] = ()

    NONE: ClassVar[Offload]
    HOST: ClassVar[Offload]
    DISK: ClassVar[Offload]

    def __post_init__(self) -> None:
        if not self.shares:
            return
        order = list(Place)
        places = [order.index(share.place) for share in self.shares]
        if places != sorted(set(places)):
            raise ConfigError("offload_order", spec=self.spec)
        if places[-1] == 0:
            raise ConfigError("offload_device_only", spec=self.spec)
        for share in self.shares[:-1]:
            if not share.is_limited:
                raise ConfigError("offload_capacity", spec=self.spec, place=share.place.value)
        for share in self.shares:
            if share.tokens == 0 or share.n_bytes == 0:
                raise ConfigError("offload_spec", spec=self.spec)

    @property
    def spec(self) -> str:
        """The canonical text form; ``parse(spec) == self``."""
        return ",".join(share.spec for share in self.shares) or "none"

    @classmethod
    def parse(cls, spec: str) -> Offload:
        """From the text form; capital letters and spaces around commas do not matter.

        Raises:
            ConfigError: says what the form is.
        """
        written = spec.strip()
        if written.lower() == "none":
            return cls()
        return cls(tuple(_parse_share(part.strip(), spec) for part in written.split(",")))

    @property
    def is_none(self) -> bool:
        """True when everything stays on the device."""
        return not self.shares

    @property
    def counts_bytes(self) -> bool:
        """True when some capacity is in bytes."""
        return any(share.n_bytes is not None for share in self.shares)

    def capacities(self, block_size: int, block_bytes: int) -> list[tuple[Place, int | None]]:
        """Places with the tokens of each layer that they take, in whole blocks; None is no limit. A block
        takes ``block_bytes`` over all layers, so that all layers share their boundaries."""
        if self.is_none:
            return [(Place.DEVICE, None)]
        return [(share.place, share.most_tokens(block_size, block_bytes)) for share in self.shares]


Offload.NONE = Offload()
Offload.HOST = Offload((TierShare(Place.HOST),))
Offload.DISK = Offload((TierShare(Place.DISK),))


def _parse_share(part: str, spec: str) -> TierShare:
    found = _SHARE.fullmatch(part)
    if found is None:
        raise ConfigError("offload_spec", spec=spec)
    place, number, unit = Place(found[1].lower()), found[2], found[3]
    if number is None:
        return TierShare(place)
    if unit.lower() == "t":
        return TierShare(place, tokens=int(number))
    sizes = {name.lower(): size for name, size in _UNITS.items()}
    return TierShare(place, n_bytes=int(number) * sizes[unit.lower()])
