"""How much memory a device can still give. Asks the device; knows nothing of what it is wanted for."""

from __future__ import annotations

import torch


def free_device_bytes(device: str) -> int:
    """Free bytes of a CUDA device: what nobody holds, and what the allocator holds without using it."""
    free, _ = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(free) + held
