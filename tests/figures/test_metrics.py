"""Metrics rows: values, kinds, dashes, status sentences."""

from dataclasses import replace

import pytest

from kvviz.figures.metrics import metrics_data, status_sentence
from kvviz.record import RunRecord
from tests.builders import FULL, make_record


def values(record: RunRecord) -> dict[str, tuple[str, str]]:
    return {m.key: (m.value, m.kind) for m in metrics_data(record)}


def test_values_and_kinds():
    found = values(make_record(8, 3, cache=FULL))
    assert found == {
        "ttft": ("100 ms", "measured"),
        "tpot": ("12.0 ms", "measured"),
        "rate": ("83.3 tok/s", "computed"),
        "generated": ("3", "measured"),
        "kv_bytes": ("5.00 KiB", "measured"),  # 10 tokens of 128 numbers of 4 bytes
        "ratio_16bit": ("0.500×", "computed"),
        "ratio_own": ("1.00×", "computed"),
        "effective_bits": ("–", "measured"),
        "cache_bits": ("32.00 bits", "measured"),
    }


def test_sealed_bits():
    assert values(make_record(8, 3))["effective_bits"] == ("7.50 bits", "measured")


def test_a_stored_run_says_so_everywhere():
    record = replace(make_record(8, 3), is_stored=True)
    assert {kind for _, kind in values(record).values()} == {"stored"}


@pytest.mark.parametrize(
    "record", [RunRecord(), make_record(8, 0, end=None), make_record(8, 0, end="failed")]
)
def test_nothing_measured_is_a_dash(record):
    assert {value for value, _ in values(record).values()} == {"–"}


def test_every_computed_number_names_its_formula():
    for metric in metrics_data(make_record(8, 3)):
        assert metric.name
        assert metric.note
        if metric.kind == "computed":
            assert "/" in metric.note


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (RunRecord(), "No run yet"),
        (make_record(8, 0, end=None), "8 of 8"),
        (make_record(8, 2, end=None), "2 tokens so far"),
        (make_record(8, 2, end="eos"), "ended its text"),
        (make_record(8, 2, end="length"), "as asked"),
        (make_record(8, 2, end="stopped"), "Stopped after 2"),
        (make_record(8, 2, end="failed"), "It broke."),
    ],
)
def test_every_status_has_a_sentence(record, words):
    assert words in status_sentence(record)


def test_a_message_with_braces_is_shown_literally():
    record = make_record(8, 2, end="failed")
    record.message = "${7*6} {name}"
    assert "${7*6} {name}" in status_sentence(record)
