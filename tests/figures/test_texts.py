"""First divergence, and text split byte-exactly there."""

import pytest

from kvviz.events import RunFinished, RunStarted, TokenGenerated, TokenLabel
from kvviz.figures.texts import text_segments
from kvviz.record import RunRecord, first_divergence
from tests.builders import make_events, make_record, record_of


def of_ids(ids: list[int], end: str | None = "length") -> RunRecord:
    return make_record(4, len(ids), generated_ids=ids, end=end)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (([1, 2, 3], "length"), ([1, 2, 3], "length"), None),
        (([1, 2, 3], "length"), ([1, 9, 3], "length"), 1),
        (([1, 2], "eos"), ([1, 2, 3], "length"), 2),
        (([1, 2], None), ([1, 2, 3], "length"), None),  # live: it may still agree
        (([1, 2], "stopped"), ([1, 2, 3], "length"), None),  # stopped: it might have agreed
        (([1, 2], "failed"), ([1, 2, 3], None), None),
        (([], None), ([1], None), None),
    ],
)
def test_first_divergence_is_symmetric(a, b, expected):
    assert first_divergence(of_ids(*a), of_ids(*b)) == expected
    assert first_divergence(of_ids(*b), of_ids(*a)) == expected


def streamed(raws: list[bytes], text: str, tail: str = "", end: str = "length") -> RunRecord:
    """A record whose tokens are these bytes and whose visible text is ``text + tail``."""
    labels = [TokenLabel(raw.decode("utf-8", "replace"), raw) for raw in raws]
    record = RunRecord()
    for event in make_events(4, len(raws), end=None):
        if isinstance(event, RunStarted):
            record.apply(event)
        if isinstance(event, TokenGenerated):
            label, last = labels[event.step], event.step == len(raws) - 1
            record.apply(
                TokenGenerated(
                    0, event.step, event.token_id, label, text if last else "", 0.0, 1.0, event.state
                )
            )
    record.apply(RunFinished(0, end, tail, 1.0, 1.0))
    return record


def split(record: RunRecord, divergence: int | None) -> tuple[str, str, str]:
    parts = text_segments(record, divergence)
    assert parts["before"] + parts["marked"] + parts["after"] == record.text
    return parts["before"], parts["marked"], parts["after"]


def test_words():
    record = streamed([b"Hello", b" wor", b"ld", b"!"], "Hello world!")
    assert split(record, 0) == ("", "Hello", " world!")
    assert split(record, 1) == ("Hello", " wor", "ld!")
    assert split(record, 3) == ("Hello world", "!", "")


def test_no_divergence_or_one_past_the_end_marks_nothing():
    record = streamed([b"Hello"], "Hello")
    assert split(record, None) == split(record, 1) == ("Hello", "", "")
    assert split(RunRecord(), None) == ("", "", "")


def test_a_character_of_three_tokens_is_marked_whole_from_each_of_them():
    raws = [b"a", "💩".encode()[:1], "💩".encode()[1:3], "💩".encode()[3:], b"b"]
    record = streamed(raws, "a💩b")
    for divergence in (1, 2, 3):
        assert split(record, divergence) == ("a", "💩", "b")
    assert split(record, 4) == ("a💩", "b", "")


def test_a_token_that_ends_one_character_and_begins_another_marks_both():
    first, second = "東".encode(), "京".encode()
    record = streamed([first[:2], first[2:] + second[:1], second[1:], b"!"], "東京!")
    assert split(record, 1) == ("", "東京", "!")
    assert split(record, 0) == ("", "東", "京!")


def test_special_tokens_are_no_text():
    record = streamed([b"Hi", b"<|im_end|>", b" there"], "Hi there")
    assert split(record, 1) == ("Hi", "", " there")
    assert split(record, 2) == ("Hi", " there", "")


def test_an_unfinished_character_is_marked_as_it_is_shown():
    record = streamed([b"ab", "東".encode()[:2]], "ab", tail="\ufffd")
    assert split(record, 1) == ("ab", "\ufffd", "")


def test_broken_bytes_inside_the_text():
    record = streamed([b"a", b"\xe6", b"b", b"c"], "a\ufffdbc")
    assert split(record, 3) == ("a\ufffdb", "c", "")
    assert split(record, 2)[0] == "a"


def test_a_dropped_first_space_shifts_nothing():
    record = streamed([b" Hello", b" world"], "Hello world")
    assert split(record, 0) == ("", "Hello", " world")
    assert split(record, 1) == ("Hello", " world", "")


def test_live_record_with_waiting_bytes():
    events = make_events(4, 2, end=None, generated=[TokenLabel("a", b"a"), TokenLabel("b", b"b")])
    record = record_of(events)
    record.labels.append(TokenLabel("‹E6›", b"\xe6"))
    assert split(record, 2) == ("ab", "", "")
