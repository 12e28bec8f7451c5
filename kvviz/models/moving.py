"""A model that was loaded for one device, on another: for hosts that lend an accelerator for a call.

Knows networks and devices; knows nothing of who lends.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kvviz.models.language_model import LanguageModel


def on_accelerator(model: LanguageModel) -> LanguageModel:
    """``model`` on CUDA in bf16 (fp16 where the card has none); itself where there is no CUDA.

    Its network is moved, not copied: meant for a process that ends with the call.
    """
    if not torch.cuda.is_available():
        return model
    device = torch.device("cuda", torch.cuda.current_device())
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    network = model.network.to(device=device, dtype=dtype)
    weights_bytes = model.facts.weights_bytes * dtype.itemsize // model.facts.dtype_bytes
    facts = replace(
        model.facts, device=str(device), dtype=str(dtype).removeprefix("torch."), dtype_bytes=dtype.itemsize,
        weights_bytes=weights_bytes,
    )  # fmt: skip
    return LanguageModel(network, model.tokenizer, facts)
