"""Time and memory of decode steps on the default model, where the context grows and where it must not matter.

Steps of two sessions are timed in turn and compared pair by pair, so that a machine whose speed drifts says
the same.
"""

from __future__ import annotations

import statistics
from typing import Any

import pytest
import torch

from kvviz.cache import CacheSession
from kvviz.config import CacheConfig
from kvviz.lab.contestants import cache_of
from kvviz.lab.speed import Watch

CONTEXT = 8192
OURS = ("full", "sinks-window", "int8", "k8v4", "kivi-4", "full-stack")


def holding(model: Any, cache: CacheConfig, tokens: int) -> CacheSession:
    """A session that holds ``tokens`` made-up tokens: what they are changes neither time nor memory."""
    session = model.new_session(cache)
    shape = (2, 1, session.n_kv_heads, 256, session.head_dim)
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        while session.seen_tokens < tokens:
            count = min(256, tokens - session.seen_tokens)
            step = session.begin(count)
            for index, layer in enumerate(session.layers):
                session.append(index, *rows[:, :, :, :count])
                layer.settle(step.keep_from)
            session.finish()
    return session


@pytest.mark.real
def test_a_streaming_step_takes_as_long_at_50_000_tokens_as_at_1_000(default_model):
    watch = Watch(default_model.device)
    near, far = (holding(default_model, cache_of("sinks-window"), tokens) for tokens in (1_000, 50_000))
    assert near.memory().used_bytes == far.memory().used_bytes

    def step_ms(session: CacheSession) -> float:
        return watch.ms(lambda: default_model.forward([1000], session, last_only=True))

    ratios = []
    for _ in range(20):  # who goes first takes turns
        first, second, third, fourth = (step_ms(session) for session in (near, far, far, near))
        ratios += [second / first, third / fourth]
    ratio = statistics.median(ratios[4:])
    print(f"a step at 50,000 tokens in units of one at 1,000: {ratio:.3f}")  # noqa: T201
    assert 0.9 < ratio < 1.1


@pytest.mark.real
@pytest.mark.parametrize("name", OURS)
def test_a_step_allocates_little_beside_what_is_held(default_model, name):
    """Under a twentieth of the bytes that keys and values of the context take in fp32."""
    facts = default_model.facts
    session = holding(default_model, cache_of(name), CONTEXT - 8)
    for token in range(4):  # whatever is made once is made by now
        default_model.forward([1000 + token], session, last_only=True)
    peak = Watch(default_model.device).transient_bytes(
        lambda: default_model.forward([2000], session, last_only=True)
    )
    session.reset()
    full = 2 * facts.n_layers * facts.n_kv_heads * facts.head_dim * 4 * CONTEXT
    print(f"{name}: {peak:,} bytes, {peak / full:.2%} of {full:,}")  # noqa: T201
    assert 0 < peak < full / 20
