"""From a spec to its quantizer: a new scheme is one file here and one line in this table."""

from __future__ import annotations

from kvviz.quant.base import Quantizer
from kvviz.quant.exact import Exact
from kvviz.quant.fp8 import Fp8
from kvviz.quant.integer import AbsMax, MinMax
from kvviz.quant.normal_float import NormalFloat4
from kvviz.quant_config import Mapping, QuantConfig

_SCHEMES: dict[tuple[str, Mapping], type[Quantizer]] = {
    ("none", Mapping.ABSMAX): Exact,
    ("int", Mapping.ABSMAX): AbsMax,
    ("int", Mapping.MINMAX): MinMax,
    ("nf4", Mapping.ABSMAX): NormalFloat4,
    ("fp8", Mapping.ABSMAX): Fp8,
}


def make_quantizer(config: QuantConfig, *, head_dim: int, block_size: int) -> Quantizer:
    """The quantizer of one side.

    Raises:
        ConfigError: the group does not divide ``head_dim`` (token) or ``block_size`` (channel).
    """
    return _SCHEMES[config.codec, config.mapping](config, head_dim=head_dim, block_size=block_size)
