"""Events of one run and of several: their order, how they end, and that nothing outlives them."""

from __future__ import annotations

import gc
import logging
import threading
import weakref

import pytest
import torch

from kvviz.config import CacheConfig, Middle, Offload, RunConfig, SamplingConfig
from kvviz.engine import compare, run
from kvviz.engine.sampling import Sampler
from kvviz.errors import ConfigError
from kvviz.events import (
    AttentionRows,
    PrefillProgress,
    RunFailed,
    RunFinished,
    RunStarted,
    TokenGenerated,
)
from kvviz.quant_config import QuantConfig
from kvviz.record import RunRecord

INT4 = QuantConfig.parse("int4:token:g16:minmax")
STACK = CacheConfig(2, 4, Middle.QUANTIZE, 4, INT4, INT4, offload=Offload.HOST)
FULL = CacheConfig(2, 4, Middle.KEEP)
PROMPT = "a text of some bytes"  # every byte is a token


def asked(cache: CacheConfig = FULL, tokens: int = 8, **more) -> RunConfig:
    return RunConfig(PROMPT, cache, use_chat_template=False, max_new_tokens=tokens, **more)


@pytest.fixture
def model(tiny):
    return tiny(dtype=torch.float32)


def ids_of(events, index: int = 0) -> list[int]:
    return [e.token_id for e in events if isinstance(e, TokenGenerated) and e.run == index]


def test_events_come_in_order(model):
    events = list(run(model, asked(STACK, chunk_size=8)))
    assert isinstance(events[0], RunStarted)
    assert events[0].prompt_ids == tuple(model.encode(PROMPT, False))
    assert b"".join(label.raw for label in events[0].prompt_labels).decode() == PROMPT
    kinds = [type(e) for e in events[1:]]
    steps = len(ids_of(events))
    assert kinds == (
        [AttentionRows, PrefillProgress] * 3
        + [TokenGenerated]
        + [AttentionRows, TokenGenerated] * (steps - 1)
        + [RunFinished]
    )
    assert [e.done_tokens for e in events if isinstance(e, PrefillProgress)] == [8, 16, 20]
    generated = [e for e in events if isinstance(e, TokenGenerated)]
    assert [e.step for e in generated] == list(range(steps))
    assert [e.state.memory.tokens for e in generated] == [20 + n for n in range(steps)]
    assert events[-1].reason in ("length", "eos")
    text = "".join(e.text_delta for e in generated) + events[-1].text_tail
    raw = b"".join(e.label.raw for e in generated if e.token_id not in model.token_text.special_ids)
    assert text == raw.decode("utf-8", errors="replace")
    assert events[-1].ttft_ms == generated[0].step_ms > 0


def test_greedy_tokens_do_not_depend_on_chunks_or_on_looking(model):
    whole = ids_of(list(run(model, asked(STACK))))
    assert ids_of(list(run(model, asked(STACK, chunk_size=3)))) == whole
    assert ids_of(list(run(model, asked(STACK), capture_attention=False))) == whole


def test_a_text_inside_the_window_runs_as_full_precision(model):
    roomy = CacheConfig(0, 128, Middle.QUANTIZE, 16, INT4, INT4)
    assert ids_of(list(run(model, asked(roomy)))) == ids_of(list(run(model, asked(FULL))))


def test_stop_ends_within_one_token(model):
    stop, events = threading.Event(), []
    for event in run(model, asked(tokens=200), stop=stop):
        events.append(event)
        if isinstance(event, TokenGenerated) and event.step == 4:
            stop.set()
    assert len(ids_of(events)) <= 6
    assert events[-1].reason == "stopped"


def test_stop_during_the_prompt(model):
    stop = threading.Event()
    stop.set()
    events = list(run(model, asked(), stop=stop))
    assert [type(e) for e in events] == [RunStarted, RunFinished]
    assert (events[-1].reason, events[-1].ttft_ms) == ("stopped", None)


def sessions_made(model, monkeypatch) -> list[weakref.ref]:
    made: list[weakref.ref] = []
    new_session = model.new_session

    def watched(cache):
        session = new_session(cache)
        made.append(weakref.ref(session))
        return session

    monkeypatch.setattr(model, "new_session", watched)
    return made


@pytest.mark.parametrize("fail_at", [0, 3])
def test_a_failure_keeps_the_text_and_the_next_run_works(model, monkeypatch, fail_at):
    expected = ids_of(list(run(model, asked(STACK))))
    made = sessions_made(model, monkeypatch)
    forward, calls = model.forward, []

    def failing(ids, session, *, last_only):
        calls.append(len(ids))
        if len(calls) == fail_at + 1:
            raise RuntimeError("a made-up failure")
        return forward(ids, session, last_only=last_only)

    with monkeypatch.context() as patch:
        # a captured log record keeps the traceback, and with it the frames
        patch.setattr(logging.getLogger("kvviz.engine.run"), "disabled", True)
        patch.setattr(model, "forward", failing)
        record = RunRecord()
        events = []
        for event in run(model, asked(STACK)):
            record.apply(event)
            events.append(event)
    assert isinstance(events[-1], RunFailed)
    assert "a made-up failure" in events[-1].message
    assert record.status == "failed"
    assert record.generated_ids == expected[:fail_at]
    assert all(ref() is None or ref().memory().used_bytes == 0 for ref in made)
    del events, event
    gc.collect()
    assert [ref() for ref in made] == [None]
    assert ids_of(list(run(model, asked(STACK)))) == expected


def test_closing_the_iterator_frees_the_cache(model, monkeypatch):
    made = sessions_made(model, monkeypatch)
    events = compare(model, [asked(FULL, 100), asked(STACK, 100)])
    for _ in range(20):
        next(events)
    held = [ref() for ref in made]
    assert all(session.memory().used_bytes > 0 for session in held)
    events.close()
    assert all(session.memory().used_bytes == 0 for session in held)
    del held, events
    gc.collect()
    assert [ref() for ref in made] == [None, None]


def test_compared_runs_do_not_mix(model):
    configs = [asked(FULL, 10), asked(STACK, 6), asked(CacheConfig(0, 2, Middle.EVICT), 8)]
    alone = [list(run(model, config)) for config in configs]
    together = list(compare(model, configs))
    for index, events in enumerate(alone):
        mine = [e for e in together if e.run == index]
        assert [type(e) for e in mine] == [type(e) for e in events]
        assert ids_of(mine, index) == ids_of(events)
        memories = [
            [e.state.memory for e in group if isinstance(e, TokenGenerated)] for group in (mine, events)
        ]
        assert memories[0] == memories[1]
    first_tokens = [e.run for e in together if isinstance(e, TokenGenerated)][:6]
    assert first_tokens == [0, 1, 2, 0, 1, 2]


def test_one_failing_run_does_not_end_the_other(model, monkeypatch):
    forward = model.forward

    def failing(ids, session, *, last_only):
        if session.config is STACK and session.seen_tokens > 21:
            raise RuntimeError("broken")
        return forward(ids, session, last_only=last_only)

    expected = ids_of(list(run(model, asked(FULL))))
    monkeypatch.setattr(model, "forward", failing)
    events = list(compare(model, [asked(STACK), asked(FULL)]))
    assert [e.run for e in events if isinstance(e, RunFailed)] == [0]
    assert ids_of(events, 1) == expected
    assert len(ids_of(events, 0)) == 3


def test_refusals_come_before_anything_runs(model):
    for config, code in [
        (RunConfig("", FULL, use_chat_template=False), "prompt_empty"),
        (RunConfig("  ", FULL), "prompt_empty"),
        (asked(FULL, 5000), "context_exceeded"),
        (asked(CacheConfig(4, 600, Middle.EVICT)), "window_context"),
        (
            asked(CacheConfig(0, 4, Middle.QUANTIZE, 4, QuantConfig.parse("int4:token:g64:absmax"))),
            "quant_group",
        ),
    ]:
        with pytest.raises(ConfigError) as refusal:
            run(model, config)
        assert refusal.value.code == code
    assert ids_of(list(run(model, asked(CacheConfig(2, 8, Middle.EVICT), 3))))


def test_sampling_follows_its_seed(model):
    def sampled(seed: int) -> list[int]:
        return ids_of(list(run(model, asked(FULL, 12, sampling=SamplingConfig(1.5, 0.95, seed)))))

    assert sampled(1) == sampled(1)
    assert len({tuple(sampled(seed)) for seed in range(4)}) > 1


def test_sampler_is_the_distribution_it_claims():
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    assert Sampler(SamplingConfig()).choose(logits) == (0, pytest.approx(-0.6931, abs=1e-4))
    sampler = Sampler(SamplingConfig(1.0, 0.8, 3))
    draws = torch.tensor([sampler.choose(logits)[0] for _ in range(4000)])
    share = torch.bincount(draws, minlength=4) / 4000
    assert share[2:].sum() == 0  # 0.5 + 0.3 reaches 0.8
    assert share[0].item() == pytest.approx(0.625, abs=0.03)
