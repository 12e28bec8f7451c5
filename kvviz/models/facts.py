"""What a record says about the model that made it, read from the network itself."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from kvviz.events import ModelFacts


def read_facts(
    network: Any, *, name: str, source: str, weights_hash: str | None = None, commit: str = ""
) -> ModelFacts:
    """Facts of a loaded network; without a given hash, the parameters are hashed."""
    config = network.config
    attention = network.base_model.layers[0].self_attn
    head_dim = getattr(attention, "head_dim", None) or config.hidden_size // config.num_attention_heads
    weight = next(network.parameters())
    return ModelFacts(
        name=name,
        family=str(config.model_type),
        weights_hash=weights_hash or hash_parameters(network),
        source=source,
        n_layers=int(config.num_hidden_layers),
        n_heads=int(config.num_attention_heads),
        n_kv_heads=int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads),
        head_dim=int(head_dim),
        context_tokens=int(config.max_position_embeddings),
        vocab_size=int(config.vocab_size),
        dtype=str(weight.dtype).removeprefix("torch."),
        dtype_bytes=weight.element_size(),
        device=str(weight.device),
        weights_bytes=_parameter_bytes(network),
        commit=commit,
    )


def hash_parameters(network: Any) -> str:
    """First 16 hex digits of the SHA-256 over names and values of all parameters, tied ones once."""
    digest = hashlib.sha256()
    for name, parameter in network.named_parameters():
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def _parameter_bytes(network: Any) -> int:
    storages = {p.data_ptr(): p.numel() * p.element_size() for p in network.parameters()}
    return sum(storages.values())
