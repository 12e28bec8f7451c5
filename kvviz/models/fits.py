"""Which networks can run through this cache, and the reason for those that cannot.

Knows architectures by what their settings and modules say; loads nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from kvviz.catalogue import text
from kvviz.errors import ModelError

_STATE_SPACE = ("mamba", "rwkv", "jamba", "zamba", "bamba", "falcon_h1", "recurrent", "lfm", "nemotron_h")
_LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")


def check_config(name: str, config: Any) -> None:
    """Refuse by the settings alone, before any weight is fetched.

    Raises:
        ModelError: names the model and the reason.
    """
    reason = _config_reason(config)
    if reason:
        raise ModelError("model_unfit", model=name, reason=text(f"models.unfit.{reason}"))


def check_network(name: str, network: Any) -> None:
    """Refuse by the modules: every layer must ask the library for its attention, with rotary positions.

    Raises:
        ModelError: names the model and the reason.
    """
    reason = _network_reason(network)
    if reason:
        raise ModelError("model_unfit", model=name, reason=text(f"models.unfit.{reason}"))


def in_cache_refusal(network: Any) -> str | None:
    """Why positions cannot be counted inside the cache, or None when they can."""
    config = network.config
    if _rope_type(config) in _LENGTH_DEPENDENT_ROPE:
        return text("models.in_cache.length_dependent")
    if not all(getattr(config, "no_rope_layers", None) or [1]):
        return text("models.in_cache.no_rope_layers")
    rotate_half = getattr(sys.modules[type(network).__module__], "rotate_half", None)
    probe = torch.arange(4.0)
    if rotate_half is None or rotate_half(probe).tolist() != [-2.0, -3.0, 0.0, 1.0]:
        return text("models.in_cache.layout")
    return None


def _config_reason(config: Any) -> str | None:
    def has(field: str) -> bool:
        return bool(getattr(config, field, None))

    model_type = str(getattr(config, "model_type", ""))
    kinds = set(getattr(config, "layer_types", None) or ())
    sliding = has("sliding_window") and getattr(config, "use_sliding_window", True)
    checks = (
        ("encoder_decoder", has("is_encoder_decoder")),
        ("multimodal", has("text_config") or has("vision_config")),
        ("state_space", any(word in model_type for word in _STATE_SPACE) or has("state_size")),
        ("linear", any("linear" in kind for kind in kinds) or has("linear_attn_config")),
        ("learned_sinks", model_type == "gpt_oss"),
        ("mla", has("kv_lora_rank")),
        ("shared_kv", has("num_kv_shared_layers")),
        ("alibi", has("alibi") or model_type in ("bloom", "mpt")),
        ("sliding", bool(sliding) or any(kind != "full_attention" for kind in kinds)),
        ("chunked", has("attention_chunk_size")),
        ("softcap", has("attn_logit_softcapping")),
        ("absolute", _rope_type(config) is None),
    )
    return next((reason for reason, applies in checks if applies), None)


def _rope_type(config: Any) -> str | None:
    """The rotary scaling in use, or None without rotary positions."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(rope, dict):
        return "default" if getattr(config, "rope_theta", None) else None
    return str(rope.get("rope_type", "default"))


def _network_reason(network: Any) -> str | None:
    base = network.base_model
    layers = getattr(base, "layers", None)
    if layers is None or not hasattr(base, "rotary_emb"):
        return "absolute"
    for layer in layers:
        attention = getattr(layer, "self_attn", None)
        if attention is None or not hasattr(attention, "layer_idx"):
            return "no_interface"
        if getattr(attention, "sinks", None) is not None:
            return "learned_sinks"
        if getattr(attention, "sliding_window", None):
            return "sliding"
    if not getattr(network, "_supports_attention_backend", False):
        return "no_interface"
    return None
