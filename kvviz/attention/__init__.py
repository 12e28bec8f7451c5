"""Room: what does this query read? Knows no cache and no quantizer: parts in, output and log-sum-exp out."""

from kvviz.attention.parts import Attention, Part, ReadTile, RowRule, Tile, attend
from kvviz.attention.rotary import difference, rotate

__all__ = ["Attention", "Part", "ReadTile", "RowRule", "Tile", "attend", "difference", "rotate"]
