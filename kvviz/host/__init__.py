"""Room: who may ask for how much, whose turn is it, and does it fit?

Knows requests and bytes; no tensors, no page.
"""

from kvviz.host.hosting import Held, HostedCompare, HostedLab, HostedRecompute, Hosting
from kvviz.host.limits import Limits
from kvviz.host.line import Line, Place, Ticket
from kvviz.host.memory import Memory, MemoryGuard, Need, free_host_bytes

__all__ = [
    "Held",
    "HostedCompare",
    "HostedLab",
    "HostedRecompute",
    "Hosting",
    "Limits",
    "Line",
    "Memory",
    "MemoryGuard",
    "Need",
    "Place",
    "Ticket",
    "free_host_bytes",
]
