"""What a quantizer does to every value, laid open: what it was given, the code, and what the code stands for.

Follows a quantizer's own wrapping (outliers out, transform, codes) and calls its own steps; codes nothing in
a second way. Knows values, no cache and no drawing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kvviz.quant.base import GroupedQuantizer, Parts, divide
from kvviz.quant.calibration import seen_by_scheme
from kvviz.quant.grouping import Grouping
from kvviz.quant.registry import make_quantizer, scheme_of
from kvviz.quant.static import SideCalibration, Static
from kvviz.quant_config import QuantConfig


@dataclass(frozen=True, slots=True, eq=False)
class Inspected:
    """Whole blocks ``(B, H, T, D)``, laid open; every tensor has that shape, but for ``levels``.

    ``restored``: what is read back of the values. ``given``: what the codes were computed from (transformed,
    outliers replaced). ``codes``: uint8. ``decoded``: what a code stands for. ``steps``: ``given`` in the
    units of its own group, ``given / scale`` or ``(given - minimum) / scale``; there ``levels (n,)``, rising,
    are the values that codes stand for. ``kept``: True where a value is stored as it is, whatever its code.
    """

    restored: Tensor
    given: Tensor
    codes: Tensor
    decoded: Tensor
    steps: Tensor
    kept: Tensor
    levels: Tensor


def inspect(
    x: Tensor, config: QuantConfig, *, block_size: int, calibration: SideCalibration | None = None
) -> Inspected:
    """Quantize ``x (B, H, T, D)``, whole blocks (unrotated keys for ``+prerotary``), and keep every step.

    Raises:
        ConfigError: as ``make_quantizer``.
    """
    head_dim = x.shape[-1]
    tool = make_quantizer(
        config, head_dim=head_dim, block_size=block_size, dtype=x.dtype, calibration=calibration
    )
    scheme = scheme_of(config, head_dim=head_dim, block_size=block_size, calibration=calibration)
    if not isinstance(scheme, GroupedQuantizer):
        raise ValueError("nothing is coded")
    parts = tool.quantize(x)
    given = seen_by_scheme(x, config, head_dim=head_dim, block_size=block_size)
    groups = scheme.grouping.split(given)
    scale, minimum = _metadata(scheme, groups, calibration if config.static else None)
    codes = scheme.unpack(parts["codes"])
    decoded = scheme.decode(scheme.grouping.split(codes), scale, minimum)
    return Inspected(
        restored=tool.dequantize(parts, x.dtype),
        given=given,
        codes=codes,
        decoded=scheme.grouping.join(decoded),
        steps=scheme.grouping.join(divide(groups if minimum is None else groups - minimum, scale)),
        kept=_kept(parts, x, config, block_size),
        levels=levels_of(scheme, given.dtype),
    )


def levels_of(scheme: GroupedQuantizer, dtype: torch.dtype = torch.float64) -> Tensor:
    """The values ``(n,)``, rising, that codes stand for in a group of scale 1 and minimum 0."""
    one, zero = torch.ones((), dtype=dtype), torch.zeros((), dtype=dtype)
    minimum = zero if scheme.has_minimum else None
    codes = torch.arange(1 << min(8, scheme.config.bits)).to(torch.uint8)
    values = scheme.decode(codes, one, minimum)
    low, high = scheme.reach(one, minimum)
    # fp8 has two NaNs and two zeros, absmax a code to spare
    levels: Tensor = torch.unique(values[(values >= low) & (values <= high)])
    return levels


def _metadata(
    scheme: GroupedQuantizer, groups: Tensor, calibration: SideCalibration | None
) -> tuple[Tensor, Tensor | None]:
    """Scale and minimum of each group as stored, in the dtype of the values."""
    if calibration is not None:
        return Static(scheme, calibration).metadata(groups)
    scale, minimum = (scheme.as_stored(part) for part in scheme.choose(groups))
    assert scale is not None
    return scale.to(groups), None if minimum is None else minimum.to(groups)


def _kept(parts: Parts, x: Tensor, config: QuantConfig, block_size: int) -> Tensor:
    mask = torch.zeros_like(x, dtype=torch.bool)
    if "outlier_places" not in parts:
        return mask
    head_dim = x.shape[-1]
    if config.guard_percent:
        grouping = Grouping(block_size, head_dim, False)
    else:
        grouping = Grouping.of(config, head_dim=head_dim, block_size=block_size)
    places = parts["outlier_places"].to(torch.int64)
    return grouping.unflat(grouping.flat(mask).scatter(-1, places, True), x.shape[1])
