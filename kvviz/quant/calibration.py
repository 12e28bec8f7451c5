"""Reading values of a calibration text once: static scales and codebooks for every side that needs them.

Knows values by layer and side, no text and no model. What the scheme itself would be given is what counts:
outliers are taken out and the transform is done before anything is learnt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kvviz.quant.base import GroupedQuantizer, Parts, Quantizer, divide
from kvviz.quant.codebook import CodeBook, k_means
from kvviz.quant.grouping import Grouping
from kvviz.quant.registry import bare_spec, scheme_of, wrap
from kvviz.quant.static import SideCalibration, Static
from kvviz.quant_config import QuantConfig


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What a text of ``tokens`` tokens taught, by (layer, "key" or "value")."""

    sides: Mapping[tuple[int, str], SideCalibration]
    tokens: int

    def side(self, layer: int, side: str) -> SideCalibration | None:
        """One side's, or None where nothing was learnt."""
        return self.sides.get((layer, side))

    @property
    def n_bytes(self) -> int:
        """Everything that is kept of it."""
        return sum(side.n_bytes for side in self.sides.values())


class _Recorder(Quantizer):
    """In a scheme's place: keeps what it is given and codes nothing."""

    seen: Tensor

    def quantize(self, x: Tensor) -> Parts:
        self.seen = x
        return {}

    def dequantize(self, parts: Parts, dtype: torch.dtype) -> Tensor:
        return self.seen.to(dtype)

    @property
    def tokens_per_row(self) -> dict[str, int]:
        return {}


def calibrate_side(x: Tensor, config: QuantConfig, *, head_dim: int, block_size: int) -> SideCalibration:
    """Learn from whole blocks ``(B, H, T, D)`` what ``config`` needs; keys before rotary come unrotated."""
    seen = seen_by_scheme(x, config, head_dim=head_dim, block_size=block_size)
    untrained = SideCalibration(bare_spec(config), levels=torch.linspace(0, 1, 1 << min(config.bits, 8)))
    scheme = scheme_of(config, head_dim=head_dim, block_size=block_size, calibration=untrained)
    assert isinstance(scheme, GroupedQuantizer)
    scale: Tensor | None = None
    minimum: Tensor | None = None
    if config.static:  # one group over all tokens
        whole = replace(scheme.grouping, tokens=seen.shape[2])
        scale, minimum = (scheme.as_stored(part) for part in scheme.choose(whole.split(seen)))
    levels = _levels(seen, scheme, scale, minimum) if isinstance(scheme, CodeBook) else None
    return SideCalibration(bare_spec(config), scale, minimum, levels)


def seen_by_scheme(x: Tensor, config: QuantConfig, *, head_dim: int, block_size: int) -> Tensor:
    """What is left of whole blocks ``(B, H, T, D)`` for the scheme, after outliers and transform."""
    recorder = _Recorder(config, head_dim=head_dim, block_size=block_size)
    wrap(recorder, config).quantize(x)
    return recorder.seen.to(torch.float64 if x.dtype is torch.float64 else torch.float32)


def _levels(seen: Tensor, scheme: CodeBook, scale: Tensor | None, minimum: Tensor | None) -> Tensor:
    """Cluster means of the values as shares of their group's range."""
    groups = scheme.grouping.split(seen)
    if scale is None or minimum is None:
        scale, minimum = (scheme.as_stored(part) for part in scheme.choose(groups))
    assert scale is not None
    assert minimum is not None
    shares = divide(groups - minimum.to(groups), scale.to(groups))
    return k_means(shares, 1 << scheme.config.bits).float()


def outside(x: Tensor, config: QuantConfig, calibration: SideCalibration, *, block_size: int) -> Tensor:
    """True where whole blocks ``(B, H, T, D)`` lie outside the range of static scales, as the scheme meets
    them (transformed, outliers taken out)."""
    head_dim = x.shape[-1]
    seen = seen_by_scheme(x, config, head_dim=head_dim, block_size=block_size)
    scheme = scheme_of(config, head_dim=head_dim, block_size=block_size, calibration=calibration)
    assert isinstance(scheme, GroupedQuantizer)
    return Static(scheme, calibration).excess(seen) > 0


def unguarded(mask: Tensor, config: QuantConfig, *, block_size: int) -> Tensor:
    """``(B, H, blocks)``: how many values that ``mask (B, H, T, D)`` marks find no place in the guard."""
    flat = Grouping(block_size, mask.shape[-1], False).flat(mask)  # (B, H, blocks, 1, n)
    places = config.guarded_of(flat.shape[-1])
    return (flat.sum(-1)[..., 0] - places).clamp(min=0)
