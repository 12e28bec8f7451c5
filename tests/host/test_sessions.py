"""Many people, one model: nobody gets another's words or failure, and nothing piles up."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from kvviz import engine
from kvviz.config import RunConfig
from kvviz.events import Event, TokenGenerated
from kvviz.host import HostedCompare, Hosting, Limits, Memory
from kvviz.host.memory import resident_bytes
from kvviz.presets import preset
from kvviz.ui.context import AppContext
from tests import load
from tests.ui.conftest import make_context  # noqa: F401  a fixture
from tests.ui.served import served, tiny_context
from tests.ui.test_handlers import Client

SESSIONS = 20


class TinyStore:
    """One model, there already."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def get(self, name: str, progress: Any = None) -> Any:
        return self._model


@pytest.fixture
def context(make_context: Callable[..., AppContext], tiny: Callable[..., Any]) -> AppContext:  # noqa: F811
    """A page over a tiny model, two turns at once."""
    hosting = Hosting(Limits(), Memory(lambda: 1 << 40))
    context = make_context(store=TinyStore(tiny()))
    return replace(context, compare=HostedCompare(hosting, engine.compare), hosting=hosting)


def alone(model: Any, config: RunConfig) -> list[int]:
    return [e.token_id for e in engine.run(model, config) if isinstance(e, TokenGenerated)]


def test_twenty_interleaved_sessions_each_see_their_own(
    context: AppContext, tiny: Callable[..., Any]
) -> None:
    clients = [Client(context, f"session {number}") for number in range(SESSIONS)]
    prompts = [f"prompt of number {number} " * (1 + number % 3) for number in range(SESSIONS)]

    def act(client: Client, prompt: str) -> None:
        context.desks.change(client.session, visible="calculator")  # nothing is drawn
        client.go(prompt=prompt, tokens=5)

    threads = [threading.Thread(target=act, args=pair) for pair in zip(clients, prompts, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for client, prompt in zip(clients, prompts, strict=True):
        records = client.run.snapshot()
        assert [record.status for record in records] == ["length", "length"]
        for record, config in zip(records, client.run.configs, strict=True):
            assert config.prompt == prompt
            assert record.generated_ids == alone(tiny(), config)
        others = [other for other in clients if other is not client]
        assert all(context.runs.get(client.run_id, other.session) is None for other in others)
    assert context.hosting.line.counts == (0, 0)


def test_a_run_that_fails_leaves_the_next_one_and_the_others_working(
    context: AppContext, tiny: Callable[..., Any]
) -> None:
    def breaking(*args: Any, **others: Any) -> Iterator[Event]:
        for number, event in enumerate(engine.compare(*args, **others)):
            if number == 9:
                raise RuntimeError("made to fail")
            yield event

    broken = replace(context, compare=HostedCompare(context.hosting, breaking))
    good, bad = Client(context, "good"), Client(broken, "bad")
    expected = alone(tiny(), RunConfig("What?", context.presets.cache("full"), max_new_tokens=6))
    for _ in range(3):
        bad.go()
        assert bad.notice["kind"] == "error"
        good.go()
        assert good.run.snapshot()[0].generated_ids == expected
    assert context.hosting.line.counts == (0, 0)
    assert context.hosting.guard.promised_bytes == 0


def tensor_bytes() -> int:
    return sum(t.numel() * t.element_size() for t in gc.get_objects() if isinstance(t, torch.Tensor))


def test_two_hundred_runs_leave_memory_flat(context: AppContext) -> None:
    held: list[tuple[int, int]] = []
    for number in range(200):
        client = Client(context, f"session {number}")
        context.desks.change(client.session, visible="calculator")  # nothing is drawn
        client.go(prompt=f"run number {number} " * 4, tokens=2)
        assert client.run.is_done
        context.runs.forget(client.session)
        context.desks.forget(client.session)
        if number in (49, 199):
            gc.collect()
            held.append((resident_bytes(), tensor_bytes()))
    assert len(context.runs) == 0
    assert held[1][1] == held[0][1], "bytes of tensors"
    assert held[1][0] - held[0][0] < 8 << 20, "150 runs more, and the process has grown"


def test_a_class_puts_the_page_under_load() -> None:
    context = tiny_context(Limits(max_running=2))
    context.loader.get(context.default_model)
    with served(context) as address:
        answers = load.put_under_load(address, 8, 4)
    assert load.problems(answers, 8) == []
    assert len(answers) == 8
    assert "8 of 8 answered" in load.report(answers)
    assert context.hosting.line.counts == (0, 0)
    model = context.loader.get(context.default_model)
    config = RunConfig(
        "Client pair 1 counts to 10. What comes next?", preset(load.PRESETS[1]), max_new_tokens=4
    )
    assert list(answers[2].tokens) == alone(model, config)


def test_the_load_script_sees_what_goes_wrong() -> None:
    good = load.Answer(0, 1, 0.5, (1, 2), "")
    assert load.problems([good, replace(good, client=1)], 2) == []
    assert "different things" in load.problems([good, replace(good, client=1, tokens=(1, 3))], 2)[0]
    assert "another's" in load.problems([replace(good, error="another's answer")], 1)[0]
    assert "not answered" in load.problems([good], 3)[0]
    with pytest.raises(ValueError, match="not on this machine"):
        load.on_loopback("https://example.com")
