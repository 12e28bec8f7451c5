"""Room: where is memory cheaper, and how does it come back? Knows tensors; no attention and no quantizer."""

from kvviz.offload.stores import DeviceStore, DiskStore, HostStore, Store, offload_folder, open_store

__all__ = ["DeviceStore", "DiskStore", "HostStore", "Store", "offload_folder", "open_store"]
