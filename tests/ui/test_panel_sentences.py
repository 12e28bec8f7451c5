"""What a panel says where it has no text, and where two texts do not differ."""

from __future__ import annotations

import dataclasses

import pytest

from kvviz.ui.views import empty_records, no_text, same_key
from tests.builders import make_record


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ("empty", "No text yet: press Compare."),
        ("prefill", "The text comes with the first token."),
        ("running", "The text comes with the first token."),
        ("finished", "The text is empty."),
        ("failed", "The text is empty."),
    ],
)
def test_without_a_text_the_panel_says_why(status, sentence):
    (record,) = empty_records(["A"])
    assert no_text(dataclasses.replace(record, status=status), "compare.panel.empty") == sentence


def test_more_is_expected_only_while_one_of_them_runs():
    done = make_record(8, 6)
    live = dataclasses.replace(done, status="running")
    assert no_text(done, "ui.panel.empty") == ""
    assert same_key((done, done)) == "same_to_end"
    assert same_key((done, live)) == same_key((live, live)) == "same"
