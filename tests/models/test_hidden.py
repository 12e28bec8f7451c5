"""The residual stream, looked at from outside: it is the one that makes the logits, and looking is free."""

from __future__ import annotations

import pytest
import torch

from kvviz.config import CacheConfig

IDS = list(b"what each layer hands on")


def watched(model, ids=IDS, chunk=100):
    """Logits and the streams ``(L, T, E)`` of a watched read."""
    session, logits, streams = model.new_session(CacheConfig()), [], {}
    for start in range(0, len(ids), chunk):
        piece = ids[start : start + chunk]
        logits.append(
            model.forward(
                piece, session, last_only=False, hidden=lambda i, x: streams.setdefault(i, []).append(x[0])
            )
        )
    return torch.cat(logits), torch.stack([torch.cat(streams[i]) for i in range(len(streams))])


@pytest.mark.parametrize("family", ["llama", "qwen3", "phi3"])
def test_the_last_stream_makes_the_logits(tiny, family):
    model = tiny(family)
    logits, streams = watched(model)
    assert streams.shape == (2, len(IDS), model.network.config.hidden_size)
    with torch.inference_mode():
        again = model.network.lm_head(model.network.base_model.norm(streams[-1]))
    assert (logits - again).abs().max() < 1e-9


def test_looking_changes_no_bit_and_leaves_nothing_behind(tiny):
    model = tiny()
    plain = model.forward(IDS, model.new_session(CacheConfig()), last_only=False)
    logits, streams = watched(model)
    assert torch.equal(plain, logits)
    seen = streams.clone()
    model.forward(IDS, model.new_session(CacheConfig()), last_only=False)
    assert torch.equal(seen, streams)
    assert not any(layer._forward_hooks for layer in model.network.base_model.layers)


def test_streams_do_not_depend_on_feeding(tiny):
    _, whole = watched(tiny())
    _, pieces = watched(tiny(), chunk=5)
    assert (whole - pieces).abs().max() < 1e-9
