"""Families that run, families that are refused, and the reason each is given."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    DeepseekV3Config,
    Gemma2Config,
    GlmConfig,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    T5Config,
)

from kvviz.config import CacheConfig, Middle, Position
from kvviz.errors import ConfigError, ModelError
from kvviz.models import fits


@pytest.mark.parametrize(
    "config",
    [LlamaConfig(), Qwen2Config(), Qwen3Config(), Phi3Config(), MistralConfig(sliding_window=None)],
    ids=lambda config: config.model_type,
)
def test_these_fit(config):
    assert fits._config_reason(config) is None


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (GPT2Config(), "absolute"),
        (BloomConfig(), "alibi"),
        (T5Config(), "encoder_decoder"),
        (MambaConfig(), "state_space"),
        (DeepseekV3Config(), "mla"),
        (GptOssConfig(), "learned_sinks"),
        (Gemma2Config(), "sliding"),
        (MistralConfig(sliding_window=4096), "sliding"),
    ],
    ids=lambda value: getattr(value, "model_type", value),
)
def test_these_do_not(config, reason):
    assert fits._config_reason(config) == reason
    with pytest.raises(ModelError) as refusal:
        fits.check_config("some/model", config)
    assert "some/model" in str(refusal.value)


def test_a_network_without_rotary_positions_is_refused():
    network = AutoModelForCausalLM.from_config(
        GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=1, n_positions=8)
    )
    assert fits._network_reason(network) == "absolute"


def test_in_cache_refused_when_rotary_scaling_depends_on_length(tiny, monkeypatch):
    model = tiny()
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    monkeypatch.setattr(model.network.config, "rope_parameters", rope)
    reason = fits.in_cache_refusal(model.network)
    assert reason is not None
    monkeypatch.setattr(model, "in_cache_refusal", reason)
    with pytest.raises(ConfigError) as refusal:
        model.new_session(CacheConfig(middle=Middle.EVICT, position=Position.IN_CACHE))
    assert reason in str(refusal.value)


def test_in_cache_refused_for_interleaved_rotary():
    config = GlmConfig(
        vocab_size=8,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
        pad_token_id=0,
    )
    network = AutoModelForCausalLM.from_config(config)
    assert fits.in_cache_refusal(network) is not None


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "phi3"])
def test_tiny_families_evict_without_a_crash(tiny, family):
    model = tiny(family)
    session = model.new_session(CacheConfig(4, 12, Middle.EVICT, position=Position.IN_CACHE))
    logits = model.forward(list(range(5, 25)), session, last_only=True)
    for token in range(40):
        logits = model.forward([token], session, last_only=True)
        assert sum(s.stop - s.start for s in session.spans() if s.tier != "evicted") == 16
    assert torch.isfinite(logits).all()
