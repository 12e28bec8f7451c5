"""Room: where is memory cheaper, and how does it come back? Knows tensors; no attention and no quantizer."""

from kvviz.offload.copies import open_copies
from kvviz.offload.prefetch import Prefetch
from kvviz.offload.stores import DeviceStore, DiskStore, HostStore, Store, offload_folder, open_store
from kvviz.offload.timeline import Timeline

__all__ = [
    "DeviceStore",
    "DiskStore",
    "HostStore",
    "Prefetch",
    "Store",
    "Timeline",
    "offload_folder",
    "open_copies",
    "open_store",
]
