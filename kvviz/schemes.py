"""The quantization schemes that are compared by name: the page, the terminal, the tests and the README's
table all read this one list.

Knows spec strings; knows no model and no measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvviz.config import CacheConfig, LayerOverride, Middle
from kvviz.quant_config import Axis, QuantConfig


@dataclass(frozen=True, slots=True)
class Scheme:
    """A named pair of quantizers."""

    name: str
    key: str
    value: str

    @property
    def needs_calibration(self) -> bool:
        """True when a text must have been read before."""
        return any(QuantConfig.parse(spec).needs_calibration for spec in (self.key, self.value))

    def sides(self, head_dim: int, block_size: int) -> tuple[QuantConfig, QuantConfig]:
        """K and V with groups that divide ``head_dim`` (token) and ``block_size`` (channel)."""
        return (
            fitted(QuantConfig.parse(self.key), head_dim, block_size),
            fitted(QuantConfig.parse(self.value), head_dim, block_size),
        )


_TOKEN4 = "int4:token:g64:minmax"
_CHANNEL4 = "int4:channel:g64:minmax"

#: From many bits to few.
SCHEMES: tuple[Scheme, ...] = (
    Scheme("int8", "int8:token:g64:absmax", "int8:token:g64:absmax"),
    Scheme("fp8", "fp8:head", "fp8:head"),
    Scheme("k8v4", "int8:token:g64:absmax", "int4:token:g64:absmax"),
    Scheme("int4-token", _TOKEN4, _TOKEN4),
    Scheme("int4-channel", _CHANNEL4, _TOKEN4),
    Scheme("int4-prerotary", f"{_CHANNEL4}+prerotary", _TOKEN4),
    Scheme("int4-hadamard", f"{_TOKEN4}+hadamard", f"{_TOKEN4}+hadamard"),
    Scheme("int4-channel-hadamard", f"{_CHANNEL4}+hadamard", f"{_TOKEN4}+hadamard"),
    Scheme("int4-outliers", f"{_TOKEN4}+outliers1", f"{_TOKEN4}+outliers1"),
    Scheme("nf4", "nf4:token:g64", "nf4:token:g64"),
    Scheme("nuq4", "nuq4:channel:g64+prerotary", "nuq4:token:g64"),
    Scheme("int3-channel", "int3:channel:g64:minmax", "int3:token:g64:minmax"),
    Scheme("nuq3", "nuq3:channel:g64+prerotary+outliers1", "nuq3:token:g64+outliers1"),
    Scheme("int2-token", "int2:token:g32:minmax", "int2:token:g32:minmax"),
    Scheme("int2-channel", "int2:channel:g32:minmax", "int2:token:g32:minmax"),
    Scheme("int2-prerotary", "int2:channel:g32:minmax+prerotary", "int2:token:g32:minmax"),
)

#: What protected layers are held in.
GUARDED = "int8:token:g64:absmax"


def scheme_names() -> tuple[str, ...]:
    """All names, in the order of the list."""
    return tuple(scheme.name for scheme in SCHEMES)


def schemes(names: Sequence[str]) -> list[Scheme]:
    """Those of these names, in the order of the list."""
    return [known for known in SCHEMES if known.name in names]


def fitted(config: QuantConfig, head_dim: int, block_size: int) -> QuantConfig:
    """The same quantizer with the largest group that divides both its own and what it lies along."""
    if config.group_size is None:
        return config
    length = head_dim if config.axis is Axis.TOKEN else block_size
    return replace(config, group_size=math.gcd(config.group_size, length))


def cache_of(
    key: QuantConfig,
    value: QuantConfig,
    *,
    head_dim: int,
    n_layers: int,
    sink_size: int = 4,
    window_size: int = 128,
    block_size: int = 64,
    edge_layers: int = 0,
) -> CacheConfig:
    """A cache that seals its middle with these quantizers, the ``edge_layers`` first and last layers in
    :data:`GUARDED`."""
    guarded = fitted(QuantConfig.parse(GUARDED), head_dim, block_size)
    edges = {*range(min(edge_layers, n_layers)), *range(max(0, n_layers - edge_layers), n_layers)}
    return CacheConfig(
        sink_size,
        window_size,
        Middle.QUANTIZE,
        block_size,
        key,
        value,
        overrides=tuple(LayerOverride(layer, guarded, guarded) for layer in sorted(edges)),
    )
