"""What is sent, and how often."""

from __future__ import annotations

from typing import Any

from kvviz.ui.frames import BYTES_PER_SECOND, INTERVALS, TICK, FrameClock


class Hand:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def count(clock: FrameClock, hand: Hand, view: str, seconds: float, payload: Any = None) -> int:
    """How often a view that always changes is sent over ``seconds``."""
    sent = 0
    end = hand.now + seconds
    while hand.now < end:
        value = {"t": hand.now, "more": payload}
        sent += len(list(clock.select({view: lambda value=value: value})))
        hand.now += TICK
    return sent


def test_at_most_four_frames_a_second() -> None:
    hand = Hand()
    assert count(FrameClock(hand), hand, "panel_a", 10) <= 40


def test_the_heatmap_at_most_once_a_second() -> None:
    hand = Hand()
    assert INTERVALS["attention"] >= 1
    assert 5 <= count(FrameClock(hand), hand, "attention", 10) <= 10


def test_a_large_view_waits_longer() -> None:
    hand = Hand()
    large = "x" * (3 * BYTES_PER_SECOND)
    assert count(FrameClock(hand), hand, "memory", 12, large) <= 5


def test_what_stays_the_same_is_not_sent() -> None:
    clock = FrameClock(Hand())
    assert dict(clock.select({"memory": lambda: {"a": 1}})) == {"memory": '{"a":1}'}
    assert dict(clock.select({"memory": lambda: {"a": 1}}, final=True)) == {}


def test_the_final_frame_does_not_wait() -> None:
    clock = FrameClock(Hand())
    list(clock.select({"attention": lambda: {"a": 1}}))
    assert dict(clock.select({"attention": lambda: {"a": 2}})) == {}
    assert dict(clock.select({"attention": lambda: {"a": 2}}, final=True)) == {"attention": '{"a":2}'}


def test_a_view_that_is_not_due_is_not_built() -> None:
    clock = FrameClock(Hand())
    list(clock.select({"attention": lambda: {"a": 1}}))

    def build() -> dict[str, Any]:
        raise AssertionError("built for nothing")

    assert dict(clock.select({"attention": build})) == {}
