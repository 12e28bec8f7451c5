"""First come, first served: places, guesses, and nobody stays in the line."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.errors import KvvizError
from kvviz.host import Line, Ticket


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def joined(line: Line, kind: str = "run") -> Ticket:
    return line.join(kind, threading.Event())


def ahead(line: Line, ticket: Ticket) -> int | None:
    place = line.place(ticket.stop)
    return None if place is None else place.ahead


def test_the_first_are_served_and_the_others_move_up() -> None:
    line = Line(2, 10)
    first, second, third, fourth = (joined(line) for _ in range(4))
    assert [ahead(line, t) for t in (first, second, third, fourth)] == [None, None, 0, 1]
    assert line.wait(first)
    line.leave(second)
    assert line.wait(third)
    assert ahead(line, fourth) == 0
    assert line.counts == (2, 1)


def test_one_that_stops_waiting_leaves_no_gap() -> None:
    line = Line(1, 10)
    first, second, third = (joined(line) for _ in range(3))
    second.stop.set()
    assert not line.wait(second)
    line.leave(second)
    line.leave(second)
    assert ahead(line, third) == 0
    line.leave(first)
    assert line.wait(third)


def test_one_that_was_called_after_its_switch_was_thrown_does_nothing() -> None:
    line = Line(1, 10)
    ticket = joined(line)
    ticket.stop.set()
    assert not line.wait(ticket)
    line.leave(ticket)
    assert line.counts == (0, 0)


def test_a_full_line_refuses_in_a_sentence_and_takes_the_next_when_one_has_left() -> None:
    line = Line(1, 2)
    tickets = [joined(line) for _ in range(3)]
    with pytest.raises(KvvizError, match="full: 1 requests are running and 2 are waiting"):
        joined(line)
    line.leave(tickets[1])
    joined(line)


def test_a_line_without_places_serves_who_need_not_wait() -> None:
    line = Line(1, 0)
    ticket = joined(line)
    with pytest.raises(KvvizError):
        joined(line)
    line.leave(ticket)
    joined(line)


def test_the_guess_is_what_is_left_and_what_stands_before() -> None:
    clock = Clock()
    line = Line(1, 10, clock)
    done = joined(line)
    clock.now = 10
    line.leave(done)  # a run takes 10 s
    joined(line)
    second, third = joined(line), joined(line)
    clock.now = 14
    places = [line.place(t.stop) for t in (second, third)]
    assert [place and place.seconds for place in places] == [6, 16]
    clock.now = 40
    place = line.place(second.stop)
    assert place is not None
    assert place.seconds == 0, "it is late, and nobody knows by how much"


def test_without_a_turn_to_go_by_there_is_no_guess() -> None:
    line = Line(1, 10)
    joined(line)
    place = line.place(joined(line).stop)
    assert place is not None
    assert place.seconds is None


def test_waiting_ends_when_the_turn_comes() -> None:
    line = Line(1, 1)
    first, second = joined(line), joined(line)
    served = threading.Event()
    waiter = threading.Thread(target=lambda: line.wait(second) and served.set())
    waiter.start()
    assert not served.is_set()
    line.leave(first)
    waiter.join(5)
    assert served.is_set()


@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(0, 4), st.lists(st.integers(0, 9), max_size=40))
def test_never_more_than_are_allowed_and_always_in_order(running: int, waiting: int, acts: list[int]) -> None:
    line = Line(running, waiting)
    tickets: list[Ticket] = []
    called: list[Ticket] = []
    for act in acts:
        if act < 6:
            try:
                tickets.append(joined(line))
            except KvvizError:
                assert line.counts == (running, waiting)
        elif tickets:
            line.leave(tickets.pop(act % len(tickets)))
        called += [t for t in tickets if t.called.is_set() and t not in called]
        now_running, now_waiting = line.counts
        assert now_running <= running
        assert now_waiting <= waiting
        assert now_waiting == 0 or now_running == running, "nobody waits for a free place"
        in_line = [t for t in tickets if not t.called.is_set()]
        assert [ahead(line, t) for t in in_line] == list(range(len(in_line)))
