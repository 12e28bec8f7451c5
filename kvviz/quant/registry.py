"""From a spec to its quantizer: a new scheme is one file here and one line in this table.

Modifiers wrap the scheme: outliers are kept apart first, then the rest is transformed, then it is coded, with
scales of its own or with static ones.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kvviz.errors import ConfigError
from kvviz.quant.base import GroupedQuantizer, Quantizer
from kvviz.quant.codebook import CodeBook
from kvviz.quant.exact import Exact
from kvviz.quant.fp8 import Fp8
from kvviz.quant.hadamard import Hadamard
from kvviz.quant.integer import AbsMax, MinMax
from kvviz.quant.normal_float import NormalFloat4
from kvviz.quant.outliers import Outliers
from kvviz.quant.static import Guard, SideCalibration, Static
from kvviz.quant_config import Mapping, QuantConfig

_SCHEMES: dict[tuple[str, Mapping], type[Quantizer]] = {
    ("none", Mapping.ABSMAX): Exact,
    ("int", Mapping.ABSMAX): AbsMax,
    ("int", Mapping.MINMAX): MinMax,
    ("nf4", Mapping.ABSMAX): NormalFloat4,
    ("fp8", Mapping.ABSMAX): Fp8,
}


def make_quantizer(
    config: QuantConfig,
    *,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype | None = None,
    calibration: SideCalibration | None = None,
) -> Quantizer:
    """The quantizer of one side; ``dtype`` is that of the run, for values that are stored as they are, and
    ``calibration`` what a spec with ``nuq`` or ``+static`` needs; others ignore it.

    ``+prerotary`` changes which keys a quantizer is given, and that is the cache's business.

    Raises:
        ConfigError: the group does not divide ``head_dim`` (token) or ``block_size`` (channel), the
            transform has too few channels, or the calibration is missing or that of another spec.
    """
    config.check_shape("", head_dim, block_size)
    if config.needs_calibration:
        if calibration is None:
            raise ConfigError("calibration_missing", spec=config.spec)
        if calibration.spec != bare_spec(config):
            raise ConfigError("calibration_other", spec=config.spec, made_for=calibration.spec)
    quantizer = scheme_of(config, head_dim=head_dim, block_size=block_size, calibration=calibration)
    if config.static:
        assert calibration is not None
        assert isinstance(quantizer, GroupedQuantizer)
        quantizer = Static(quantizer, calibration)
        if config.guard_percent:
            quantizer = Guard(quantizer, dtype)
    return wrap(quantizer, config, dtype)


def scheme_of(
    config: QuantConfig, *, head_dim: int, block_size: int, calibration: SideCalibration | None
) -> Quantizer:
    """The scheme alone, without its modifiers."""
    if config.codec == "nuq":
        assert calibration is not None
        assert calibration.levels is not None
        return CodeBook(config, levels=calibration.levels, head_dim=head_dim, block_size=block_size)
    return _SCHEMES[config.codec, config.mapping](config, head_dim=head_dim, block_size=block_size)


def wrap(quantizer: Quantizer, config: QuantConfig, dtype: torch.dtype | None = None) -> Quantizer:
    """The transform and the outliers of ``config`` around a quantizer."""
    if config.hadamard:
        quantizer = Hadamard(quantizer)
    return Outliers(quantizer, dtype) if config.outlier_percent else quantizer


def bare_spec(config: QuantConfig) -> str:
    """The spec that a calibration is made for: a guard changes nothing that is learnt."""
    return replace(config, guard_percent=0.0).spec
