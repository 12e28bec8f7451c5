"""Room: how small can this tensor get? Knows no cache and no model."""

from kvviz.quant.base import Parts, Quantizer
from kvviz.quant.registry import make_quantizer

__all__ = ["Parts", "Quantizer", "make_quantizer"]
