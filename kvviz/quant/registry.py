"""From a spec to its quantizer: a new scheme is one file here and one line in this table.

Modifiers wrap the scheme: outliers are kept apart first, then the rest is transformed, then it is coded.
"""

from __future__ import annotations

import torch

from kvviz.quant.base import Quantizer
from kvviz.quant.exact import Exact
from kvviz.quant.fp8 import Fp8
from kvviz.quant.hadamard import Hadamard
from kvviz.quant.integer import AbsMax, MinMax
from kvviz.quant.normal_float import NormalFloat4
from kvviz.quant.outliers import Outliers
from kvviz.quant_config import Mapping, QuantConfig

_SCHEMES: dict[tuple[str, Mapping], type[Quantizer]] = {
    ("none", Mapping.ABSMAX): Exact,
    ("int", Mapping.ABSMAX): AbsMax,
    ("int", Mapping.MINMAX): MinMax,
    ("nf4", Mapping.ABSMAX): NormalFloat4,
    ("fp8", Mapping.ABSMAX): Fp8,
}


def make_quantizer(
    config: QuantConfig, *, head_dim: int, block_size: int, dtype: torch.dtype | None = None
) -> Quantizer:
    """The quantizer of one side; ``dtype`` is that of the run, for values that are stored as they are.

    ``+prerotary`` changes which keys a quantizer is given, and that is the cache's business.

    Raises:
        ConfigError: the group does not divide ``head_dim`` (token) or ``block_size`` (channel), or the
            transform has too few channels.
    """
    config.check_shape("", head_dim, block_size)
    scheme = _SCHEMES[config.codec, config.mapping]
    quantizer = scheme(config, head_dim=head_dim, block_size=block_size)
    if config.hadamard:
        quantizer = Hadamard(quantizer)
    return Outliers(quantizer, dtype) if config.outlier_percent else quantizer
