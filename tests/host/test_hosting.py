"""Everything that uses a model goes through one way in, and leaves nothing behind."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kvviz import lab as real_lab
from kvviz.config import ConfigError, RunConfig
from kvviz.engine import compare
from kvviz.errors import KvvizError
from kvviz.events import RunFinished, TokenGenerated
from kvviz.host import HostedCompare, HostedLab, HostedRecompute, Hosting, Limits, Memory, Need
from tests.builders import make_facts, make_record

CONFIG = RunConfig("hello", use_chat_template=False, max_new_tokens=6)
PLENTY = Memory(lambda: 1 << 40)


def hosting(**limits: Any) -> Hosting:
    return Hosting(Limits(**{"max_running": 1, "max_waiting": 1, **limits}), PLENTY)


def test_a_run_is_the_engine_s(tiny: Callable[..., Any]) -> None:
    host, model = hosting(), tiny()
    tokens = [
        [e.token_id for e in asked(model, [CONFIG, CONFIG]) if isinstance(e, TokenGenerated)]
        for asked in (HostedCompare(host, compare), compare)
    ]
    assert tokens[0] == tokens[1] != []
    assert host.line.counts == (0, 0)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_prompt_chars": 4}, "5 characters"),
        ({"max_new_tokens": 5}, "6 new tokens"),
        ({"max_configurations": 0}, "1 configurations"),
        ({"max_prompt_tokens": 4}, "5 tokens"),
        ({"max_context_tokens": 10}, "11 tokens in all"),
    ],
)
def test_caps_are_checked_before_anything_runs(
    tiny: Callable[..., Any], limits: dict[str, int], said: str
) -> None:
    def engine(*_: Any, **__: Any) -> Iterator[Any]:
        raise AssertionError("the engine was asked")

    with pytest.raises(ConfigError, match=said):
        HostedCompare(hosting(**limits), engine)(tiny(), [CONFIG])


def test_what_does_not_fit_is_refused_before_it_starts_and_the_next_one_runs(
    tiny: Callable[..., Any],
) -> None:
    free = [1000]
    host = Hosting(Limits(keep_free_bytes=0), Memory(lambda: free[0]))
    hosted = HostedCompare(host, compare)
    with pytest.raises(KvvizError, match="KiB of memory, and 1000 B can be had now"):
        next(iter(hosted(tiny(), [CONFIG])))
    assert host.line.counts == (0, 0)
    free[0] = 1 << 30
    assert [e for e in hosted(tiny(), [CONFIG]) if isinstance(e, RunFinished)]


def test_a_second_run_waits_for_the_first_and_a_third_is_refused(tiny: Callable[..., Any]) -> None:
    host, model = hosting(), tiny()
    hosted = HostedCompare(host, compare)
    first = hosted(model, [CONFIG])
    next(first)
    stop, seen = threading.Event(), []
    second = threading.Thread(target=lambda: seen.extend(hosted(model, [CONFIG], stop=stop)))
    second.start()
    wait_for(lambda: host.line.place(stop) is not None)
    with pytest.raises(KvvizError, match="full"):
        next(iter(hosted(model, [CONFIG])))
    assert seen == []
    first.close()  # whoever watched it has gone
    second.join(10)
    assert isinstance(seen[-1], RunFinished)
    assert host.line.counts == (0, 0)


def test_one_that_is_stopped_while_it_waits_never_begins(tiny: Callable[..., Any]) -> None:
    host, model = hosting(), tiny()
    hosted = HostedCompare(host, compare)
    first = hosted(model, [CONFIG])
    next(first)
    stop = threading.Event()
    stop.set()
    assert list(hosted(model, [CONFIG], stop=stop)) == []
    first.close()
    assert host.line.counts == (0, 0)


def test_time_is_up_ends_a_run_with_what_it_has(tiny: Callable[..., Any]) -> None:
    host = hosting(max_run_seconds=1)
    config = RunConfig("hello", use_chat_template=False, max_new_tokens=400)
    seen: list[Any] = []
    with pytest.raises(KvvizError, match="gives a request 1 s"):  # noqa: PT012
        for event in HostedCompare(host, compare)(tiny(), [config]):
            seen.append(event)
            time.sleep(0.02)
    assert isinstance(seen[-1], RunFinished)
    assert seen[-1].reason == "stopped"
    assert any(isinstance(event, TokenGenerated) for event in seen)
    assert host.line.counts == (0, 0)


def test_a_run_that_breaks_gives_its_turn_back(tiny: Callable[..., Any]) -> None:
    def engine(*_: Any, **__: Any) -> Iterator[Any]:
        yield from ()
        raise RuntimeError("made to fail")

    host = hosting()
    with pytest.raises(RuntimeError):
        list(HostedCompare(host, engine)(tiny(), [CONFIG]))
    assert host.line.counts == (0, 0)
    assert list(HostedCompare(host, compare)(tiny(), [CONFIG]))


def test_an_experiment_is_the_laboratory_s_and_has_its_own_caps(tiny: Callable[..., Any]) -> None:
    model = tiny(n_layers=1, context=8192)
    given = {"kinds": ["random"], "tokens": 16, "texts": 1}
    result = list(HostedLab(hosting(), real_lab).perform(model, "sink", given))[-1]
    plain = list(real_lab.perform(model, "sink", given))[-1]
    assert result.tables == plain.tables
    for limits, said in (({"max_context_tokens": 15}, "16 tokens"), ({"max_lab_tokens": 15}, "16 tokens")):
        host = hosting(**limits)
        with pytest.raises(ConfigError, match=said):
            list(HostedLab(host, real_lab).perform(model, "sink", given))
        assert host.line.counts == (0, 0)


def test_every_experiment_says_how_many_tokens_it_holds() -> None:
    held = {info.name: info.held_tokens(info.settings({})) for info in real_lab.experiments()}
    assert min(held.values()) >= 64
    assert held["positions"] == 128, "the text is longer than what is held"


def test_a_recomputation_waits_its_turn_too(tiny: Callable[..., Any]) -> None:
    told: list[Any] = []

    def logit_map(model: Any, record: Any, *, layer: int, stop: Any, progress: Any) -> str:
        told.append(host.line.counts)
        progress(1, 2)
        return f"layer {layer}"

    host = hosting()
    hosted = HostedRecompute(host, SimpleNamespace(logit_map=logit_map))
    record = make_record()
    assert hosted.logit_map(tiny(), record, layer=1, progress=lambda *at: told.append(at)) == "layer 1"
    assert told == [(1, 0), (1, 2)]
    assert host.line.counts == (0, 0)


def test_anything_else_can_hold_a_turn() -> None:
    host = hosting()
    stop = threading.Event()
    with host.hold("score", make_facts(), [Need(1000)], stop=stop, most_seconds=60) as held:
        assert held is not None
        held.check()
        assert host.line.counts == (1, 0)
    with pytest.raises(KvvizError, match="time is up"):  # noqa: SIM117, PT012
        with host.hold("score", make_facts(), stop=stop, most_seconds=0) as held:
            assert held is not None
            held.check()
    assert stop.is_set()


def test_the_log_tells_what_ran_and_never_a_word_of_the_prompt(
    tiny: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    secret = RunConfig("zebra crossing", use_chat_template=False, max_new_tokens=2)
    with caplog.at_level(logging.INFO, "kvviz"):
        list(HostedCompare(hosting(), compare)(tiny(), [secret]))
    told = [record.data for record in caplog.records if hasattr(record, "data")]
    assert [data["kind"] for data in told] == ["run", "run"]
    assert told[0]["need_bytes"] > 0
    assert told[1]["outcome"] in ("length", "eos")
    assert told[1]["took_s"] >= 0
    assert "zebra" not in " ".join(str(vars(record)) for record in caplog.records)


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
