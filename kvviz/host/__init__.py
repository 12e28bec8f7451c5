"""Room: who may ask for how much, whose turn is it, and does it fit?

Knows requests and bytes; no tensors, no page.
"""

from kvviz.host.guarded import HostedCompare, HostedComparing, HostedLab, HostedRecompute, HostedScore
from kvviz.host.hosting import Held, Hosting
from kvviz.host.limits import Limits
from kvviz.host.line import Line, Place, Ticket
from kvviz.host.memory import Memory, MemoryGuard, Need, free_host_bytes
from kvviz.host.opening import open_hosting

__all__ = [
    "Held",
    "HostedCompare",
    "HostedComparing",
    "HostedLab",
    "HostedRecompute",
    "HostedScore",
    "Hosting",
    "Limits",
    "Line",
    "Memory",
    "MemoryGuard",
    "Need",
    "Place",
    "Ticket",
    "free_host_bytes",
    "open_hosting",
]
