"""The library's caches on the same weights: same logits, honest bytes, and our attention back in place."""

from __future__ import annotations

import pytest
import torch

from kvviz.config import CacheConfig
from kvviz.models import adapter
from kvviz.models.library import is_installed

IDS = list(range(3, 43))


def test_the_library_reads_what_we_read(tiny):
    model = tiny("llama")
    reading, session = model.library_reading("dynamic"), model.new_session(CacheConfig())
    theirs = [reading.feed(IDS[:30]), *(reading.feed([token]) for token in IDS[30:])]
    ours = [model.forward(IDS[:30], session, last_only=True)]
    ours += [model.forward([token], session, last_only=True) for token in IDS[30:]]
    for a, b in zip(theirs, ours, strict=True):
        torch.testing.assert_close(a.float(), b[0].float(), rtol=1e-4, atol=1e-5)


def test_a_dynamic_cache_holds_two_numbers_for_every_channel_of_every_token(tiny):
    model = tiny("llama")
    facts, reading = model.facts, model.library_reading("dynamic")
    reading.feed(IDS)
    per_token = 2 * facts.n_layers * facts.n_kv_heads * facts.head_dim * facts.dtype_bytes
    assert reading.held_bytes() == per_token * len(IDS)


def test_our_attention_is_back_even_after_a_failure(tiny):
    model = tiny("llama")
    reading = model.library_reading("dynamic")
    reading.feed(IDS[:4])
    assert model.network.config._attn_implementation == adapter.ATTENTION_NAME
    with pytest.raises(IndexError):
        reading.feed([10**6])
    assert model.network.config._attn_implementation == adapter.ATTENTION_NAME


def test_what_needs_a_package_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert is_installed("dynamic")
    assert not is_installed("quanto")
    assert not is_installed("hqq")
