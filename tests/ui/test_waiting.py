"""Several people press Run: who waits is told where, and who cannot wait is told so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kvviz.config import RunConfig
from kvviz.events import Event
from kvviz.host import HostedCompare, Hosting, Limits, Memory
from kvviz.ui.context import AppContext
from kvviz.ui.line import place_words
from tests.ui.fakes import FakeEngine, FakeStore
from tests.ui.test_handlers import Client, wait_for

Make = Callable[..., AppContext]


class Store(FakeStore):
    """Its model counts characters as tokens."""

    def get(self, name: str, progress: Any = None) -> Any:
        model = super().get(name, progress)
        model.encode = lambda prompt, use_chat_template: list(prompt.encode())
        return model


class HeldEngine(FakeEngine):
    """Begins every run, and goes on when ``gate`` is set."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self._gate = gate

    def __call__(
        self, model: Any, configs: Sequence[RunConfig], *, stop: threading.Event | None = None, **others: Any
    ) -> Iterator[Event]:
        events = super().__call__(model, configs, stop=stop, **others)
        yield next(events)
        while not self._gate.wait(0.01) and not (stop and stop.is_set()):
            pass
        yield from events


@pytest.fixture
def gate() -> threading.Event:
    """Set it and all runs end."""
    return threading.Event()


@pytest.fixture
def hosted(make_context: Make, gate: threading.Event) -> Callable[..., AppContext]:
    """A page whose engine is behind limits."""

    def make(**limits: Any) -> AppContext:
        hosting = Hosting(Limits(**{"max_running": 1, **limits}), Memory(lambda: 1 << 40))
        context = make_context(store=Store())
        return replace(context, compare=HostedCompare(hosting, HeldEngine(gate)), hosting=hosting)

    return make


def test_the_second_is_told_its_place_and_then_runs(
    hosted: Callable[..., AppContext], gate: threading.Event
) -> None:
    context = hosted()
    first, second, third = (Client(context, name) for name in ("one", "two", "three"))
    assert first.prepare(tokens=2)
    watching = first.stream()
    next(watching)
    wait_for(lambda: context.hosting.line.counts == (1, 0))
    said: list[list[str]] = [[], []]

    def follow(client: Client, heard: list[str]) -> None:
        assert client.prepare(tokens=2)
        for _ in client.stream():
            heard.append(client.notice["text"])

    others = []
    for client, heard, waiting in ((second, said[0], 1), (third, said[1], 2)):
        others.append(threading.Thread(target=follow, args=(client, heard)))
        others[-1].start()
        wait_for(lambda waiting=waiting: context.hosting.line.counts == (1, waiting))
    wait_for(lambda: any("next of" in w for w in said[0]) and any("number 2" in w for w in said[1]))
    gate.set()
    for _ in watching:
        pass
    for thread in others:
        thread.join(20)
    assert any(words.startswith("Your request is next of") for words in said[0])
    assert any("number 2 of 2 waiting" in words for words in said[1])
    assert {client.views["panel_a"]["state"] for client in (first, second, third)} == {"length"}
    assert context.hosting.line.counts == (0, 0)


def test_a_full_server_says_so_and_keeps_what_is_shown(
    hosted: Callable[..., AppContext], gate: threading.Event
) -> None:
    context = hosted(max_waiting=0)
    first, second = Client(context, "one"), Client(context, "two")
    assert first.prepare(tokens=2)
    watching = first.stream()
    next(watching)
    wait_for(lambda: context.hosting.line.counts == (1, 0))
    second.go(tokens=2)
    assert second.notice["kind"] == "error"
    assert "full: 1 requests are running" in second.notice["text"]
    gate.set()
    for _ in watching:
        pass
    second.go(tokens=2)
    assert second.views["panel_a"]["state"] == "length"


def test_who_leaves_the_line_makes_room(hosted: Callable[..., AppContext], gate: threading.Event) -> None:
    context = hosted()
    first, second = Client(context, "one"), Client(context, "two")
    assert first.prepare(tokens=2)
    watching = first.stream()
    next(watching)
    wait_for(lambda: context.hosting.line.counts == (1, 0))
    assert second.prepare()
    waiting = second.stream()
    next(waiting)
    wait_for(lambda: context.hosting.line.counts == (1, 1))
    context.runs.forget("two")  # the tab was closed
    wait_for(lambda: context.hosting.line.counts[1] == 0)
    gate.set()
    for _ in watching:
        pass


@pytest.mark.parametrize(
    ("limits", "request_", "said"),
    [
        ({"max_prompt_chars": 3}, {"prompt": "What?"}, "5 characters"),
        ({"max_new_tokens": 5}, {"tokens": 6}, "6 new tokens"),
        ({"models": ("other",)}, {}, 'does not offer the model "tiny"'),
    ],
)
def test_a_refused_request_is_never_laid_ready(
    hosted: Callable[..., AppContext], limits: dict[str, Any], request_: dict[str, Any], said: str
) -> None:
    client = Client(hosted(**limits))
    assert not client.prepare(**request_)
    assert said in client.notice["text"]
    assert client.notice["kind"] == "error"


def test_a_guess_is_told_when_there_is_one(hosted: Callable[..., AppContext], gate: threading.Event) -> None:
    gate.set()
    context = hosted()
    client = Client(context)
    client.go(tokens=2)
    line = context.hosting.line
    line.join("run", threading.Event())
    stop = threading.Event()
    line.join("run", stop)
    place = line.place(stop)
    assert place is not None
    assert place_words(place) == "Your request is next of 1 waiting. It begins in about 1 s."
