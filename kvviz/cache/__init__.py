"""Room: where does this token live? The plan decides in integers, the rest moves tensors and counts bytes."""

from kvviz.cache.prerotary import Rotary
from kvviz.cache.session import CacheSession, Observer

__all__ = ["CacheSession", "Observer", "Rotary"]
