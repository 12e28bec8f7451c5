"""Room: how small can this tensor get? Knows no cache and no model."""

from kvviz.quant.base import Parts, Quantizer, narrow, wide_dtype
from kvviz.quant.registry import make_quantizer

__all__ = ["Parts", "Quantizer", "make_quantizer", "narrow", "wide_dtype"]
