"""How a prediction is judged: right, wrong, and so near to an edge that both sides count."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.errors import ConfigError
from kvviz.lessons import Choice, Estimate, Evidence, Pick, check, read_answer
from kvviz.lessons.lesson import binned, of_two, yes_no

NOTHING = Evidence({})
OPTIONS = ("low", "middle", "high")


@pytest.mark.parametrize(
    ("value", "best", "accepted"),
    [
        (0.5, "low", {"low"}),
        (1.5, "middle", {"middle"}),
        (9.0, "high", {"high"}),
        (0.96, "low", {"low", "middle"}),  # within a twentieth of the edge at 1
        (1.04, "middle", {"low", "middle"}),
        (1.06, "middle", {"middle"}),
        (3.0, "high", {"middle", "high"}),  # on the edge
    ],
)
def test_near_an_edge_both_sides_count(value, best, accepted):
    truth = binned(value, (1, 3), OPTIONS)
    assert truth.best == best
    assert set(truth.accepted) == accepted
    question = Choice("q", OPTIONS, lambda evidence: truth)
    for option in OPTIONS:
        verdict = check(question, option, NOTHING)
        assert (verdict.kind == "right") == (option in accepted)
        assert verdict.score == float(option in accepted)
        assert verdict.truth.best == best


@pytest.mark.parametrize(
    ("first", "second", "best", "accepted"),
    [
        (4.0, 1.0, "key", {"key"}),
        (1.0, 4.0, "value", {"value"}),
        (1.0, 1.1, "same", {"same"}),
        (1.24, 1.0, "same", {"same", "key"}),
        (1.0, 1.26, "value", {"same", "value"}),
        (1.0, 0.0, "key", {"key"}),
    ],
)
def test_which_of_two_is_larger(first, second, best, accepted):
    truth = of_two(first, second, ("key", "value", "same"))
    assert (truth.best, set(truth.accepted)) == (best, accepted)


def test_yes_or_no():
    assert yes_no(True).accepted == ("yes",)
    assert yes_no(False).accepted == ("no",)


def estimate(value: float, unit: str = "count", right: float = 0.1, near: float = 0.5) -> Estimate:
    return Estimate("q", unit, lambda evidence: value, right, near)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("question", "answer", "kind"),
    [
        (estimate(100), 110, "right"),
        (estimate(100), 90, "right"),
        (estimate(100), 110.1, "near"),
        (estimate(100), 150, "near"),
        (estimate(100), 151, "wrong"),
        (estimate(0), 0, "right"),
        (estimate(0), 1, "wrong"),
        (estimate(0.35, "share"), 0.45, "right"),  # a share is off by so many points, not by a factor
        (estimate(0.35, "share"), 0.85, "near"),
        (estimate(0.02, "share"), 0.12, "right"),
    ],
)
def test_an_estimate_is_right_near_or_wrong(question, answer, kind):
    verdict = check(question, answer, NOTHING)
    assert verdict.kind == kind
    assert verdict.score == {"right": 1, "near": 0.5, "wrong": 0}[kind]


@given(st.floats(1e-3, 1e9), st.floats(0, 3), st.floats(0, 3))
def test_a_closer_estimate_is_never_worse(value, closer, further):
    closer, further = sorted((closer, further))
    scores = [check(estimate(value), value * (1 + off), NOTHING).score for off in (closer, further)]
    assert scores[0] >= scores[1]


def pick(scores: dict[str, float | None]) -> Pick:
    return Pick("q", OPTIONS, lambda evidence: scores, lambda evidence, option: {"name": option})


def test_a_pick_has_its_own_score():
    question = pick({"low": 1.0, "middle": 0.25, "high": None})
    best, poor, refused = (check(question, option, NOTHING) for option in OPTIONS)
    assert (best.kind, best.score) == ("right", 1)
    assert (poor.kind, poor.score) == ("wrong", 0.25)
    assert (refused.kind, refused.score) == ("wrong", 0)
    assert {v.truth.best for v in (best, poor, refused)} == {"low"}
    assert check(pick({"low": 1.0, "middle": 0.6, "high": 0.0}), "middle", NOTHING).kind == "near"
    assert check(pick(dict.fromkeys(OPTIONS)), "low", NOTHING).truth.best == ""


@pytest.mark.parametrize(
    ("given_", "expected"),
    [("23040", 23040), ("23,040", 23040), (23040, 23040), (" 2.5 ", 2.5), ("1e3", 1000), (0, 0)],
)
def test_numbers_are_read_as_people_write_them(given_, expected):
    assert read_answer(estimate(1), given_) == expected


def test_a_share_is_asked_in_percent():
    assert read_answer(estimate(0.3, "share"), "35") == pytest.approx(0.35)
    with pytest.raises(ConfigError, match="between 0 and 100"):
        read_answer(estimate(0.3, "share"), "101")


@pytest.mark.parametrize(
    "given_", [None, "", "many", "nan", "inf", "-1", True, [], {"a": 1}, "1e999", "9" * 400]
)
def test_what_is_no_number_is_refused(given_):
    with pytest.raises(ConfigError):
        read_answer(estimate(1), given_)


@pytest.mark.parametrize("given_", [None, "", "other", 3, ["low"]])
def test_what_is_no_option_is_refused(given_):
    question = Choice("q", OPTIONS, lambda evidence: yes_no(True))
    with pytest.raises(ConfigError):
        read_answer(question, given_)


def test_nothing_measured_makes_everything_wrong_but_nothing():
    assert check(estimate(math.inf), 5, NOTHING).kind == "wrong"
