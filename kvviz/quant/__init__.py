"""Room: how small can this tensor get? Knows no cache and no model."""

from kvviz.quant.base import Affine, Parts, Quantizer, narrow, wide_dtype
from kvviz.quant.calibration import Calibration, calibrate_side, outside, unguarded
from kvviz.quant.inspect import Inspected, inspect
from kvviz.quant.registry import make_quantizer
from kvviz.quant.requantize import Requantized, SealedOnce
from kvviz.quant.static import SideCalibration

__all__ = [
    "Affine",
    "Calibration",
    "Inspected",
    "Parts",
    "Quantizer",
    "Requantized",
    "SealedOnce",
    "SideCalibration",
    "calibrate_side",
    "inspect",
    "make_quantizer",
    "narrow",
    "outside",
    "unguarded",
    "wide_dtype",
]
