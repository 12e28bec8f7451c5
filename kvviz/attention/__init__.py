"""Room: what does this query read? Knows no cache and no quantizer: parts in, output and log-sum-exp out."""

from kvviz.attention.build import Built, KernelBuild, kernel_build
from kvviz.attention.fast import Reading, is_fast, look, read
from kvviz.attention.kernel import Kernel
from kvviz.attention.parts import Attention, Part, ReadTile, RowRule, Tile, attend
from kvviz.attention.rotary import difference, rotate
from kvviz.attention.stored import Codes, Stored

__all__ = [
    "Attention",
    "Built",
    "Codes",
    "Kernel",
    "KernelBuild",
    "Part",
    "ReadTile",
    "Reading",
    "RowRule",
    "Stored",
    "Tile",
    "attend",
    "difference",
    "is_fast",
    "kernel_build",
    "look",
    "read",
    "rotate",
]
