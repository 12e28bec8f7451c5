"""A comparison's figures hold the comparison's numbers, and nothing else is needed to draw them."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from kvviz.comparison import Comparison
from kvviz.comparison_words import cell_words
from kvviz.figures.compare import (
    bytes_figure,
    draw_bars,
    draw_bytes,
    draw_nll,
    entry_record,
    excess,
    memory_segments,
    nll_figure,
    quality_figure,
    speed_figure,
    spoken,
)
from kvviz.figures.metrics import metrics_data, status_sentence
from kvviz.figures.texts import text_segments
from kvviz.figures.theme import palette
from tests.comparisons import NLL_FULL, make_comparison


@pytest.fixture
def made():
    return make_comparison(others=3)


def test_bars_are_the_numbers(made):
    figure = draw_bars(made, ("ppl", "kl", "top1"), "x")
    for bar, key in zip(figure.data, ("ppl", "kl", "top1"), strict=True):
        values = [made.value(key, i) for i in range(4)]
        assert list(bar.x) == values
        assert list(bar.y) == ["A", "B", "C", "D"]
        assert list(bar.marker.color) == [palette().run(i).color for i in range(4)]
        assert [words in bar.text for words in bar.text] == [True] * 4
        assert "measured" in bar.hovertemplate


def test_each_number_has_one_scale_for_all(made):
    payload = quality_figure(made)
    for axis, key in (("xaxis", "ppl"), ("xaxis2", "kl"), ("xaxis3", "top1")):
        low, high = payload["layout"][axis]["range"]
        assert low == 0
        assert high > max(made.value(key, i) for i in range(4))
    lines = [shape for shape in payload["layout"]["shapes"] if shape["type"] == "line"]
    assert lines[0]["x0"] == made.text.ppl


def test_a_number_that_was_not_measured_is_a_dash():
    made = make_comparison()
    silent = dataclasses.replace(made.entries[1].generation, ttft_ms=None, tpot_ms=None)
    entry = dataclasses.replace(made.entries[1], generation=silent)
    made = dataclasses.replace(made, entries=(made.entries[0], entry))
    bars = speed_figure(made)["data"][0]
    assert bars["text"][1] == "–"
    assert bars["x"][1] == 0


def test_memory_adds_up_and_keeps_its_scale(made):
    segments = memory_segments(made)
    totals = np.sum([segment.used for segment in segments], axis=0)
    assert totals.tolist() == [entry.generation.memory.used_bytes for entry in made.entries]
    figure = draw_bytes(made, segments)
    size = figure.data[-1].x[0] / made.value("full_16bit_bytes", 0)
    drawn = np.sum([trace.x for trace in figure.data[:-1]], axis=0)
    assert drawn == pytest.approx(totals * size)
    assert figure.layout.xaxis.range[1] > max(drawn)
    notes = [note.text for note in figure.layout.annotations]
    assert notes == [cell_words(made.value("kv_bytes", i), "bytes") for i in range(4)]


def test_what_is_not_on_the_device_is_hatched_over_its_own_colour(made):
    segments = memory_segments(made)
    assert {segment.location for segment in segments} == {"device", "host"}
    for segment, bar in zip(segments, draw_bytes(made, segments).data, strict=False):
        assert bar.marker.pattern.shape == ("" if segment.location == "device" else "/")
        assert bar.marker.pattern.fillmode == "overlay"
        assert bar.marker.color


def test_loss_is_a_rolling_mean_above_full_precision(made):
    lost = excess(made, rolling=2)
    for i, entry in enumerate(made.entries):
        raw = np.asarray(entry.score.nll) - NLL_FULL
        assert lost[i, 0] == pytest.approx(raw[0])
        assert lost[i, 3] == pytest.approx(raw[2:4].mean())
    assert not lost[0].any()
    figure = draw_nll(made)
    assert list(figure.data[0].x) == list(range(4, 10))  # rows 3 to 8 predict tokens 4 to 9


def test_without_a_text_or_a_token_it_says_so():
    made = make_comparison(scored=False)
    for draw in (quality_figure, nll_figure):
        assert not draw(made)["data"]
        assert "scored" in draw(made)["layout"]["annotations"][0]["text"]
    empty = [
        dataclasses.replace(
            entry, generation=dataclasses.replace(entry.generation, memory=None, ttft_ms=None, tpot_ms=None)
        )
        for entry in made.entries
    ]
    made = dataclasses.replace(made, entries=tuple(empty))
    for draw in (bytes_figure, speed_figure):
        assert not draw(made)["data"]


def test_a_stored_comparison_says_stored(made):
    read = Comparison.from_json(made.to_json())
    for draw in (quality_figure, bytes_figure, speed_figure, nll_figure):
        words = json.dumps(draw(read)["data"])
        assert "stored" in words
        assert "measured" not in words
        assert json.dumps(draw(made)["data"]) == words.replace("stored", "measured") or draw is bytes_figure


def test_a_name_is_shown_literally():
    made = make_comparison()
    entry = dataclasses.replace(made.entries[1], label="<b>bold</b>")
    made = dataclasses.replace(made, entries=(made.entries[0], entry))
    for draw in (quality_figure, nll_figure, speed_figure):
        assert "<b>bold" not in json.dumps(draw(made))


def test_numbers_are_told_in_words(made):
    told = spoken(made, ("kl",))
    assert told.startswith("KL to full precision (nats): A 0, B ")
    assert all(letter in told for letter in "ABCD")


def test_an_entry_can_be_shown_like_a_run(made):
    record = entry_record(made, 1)
    assert text_segments(record, 2)["before"] + text_segments(record, 2)["marked"] != ""
    stored = entry_record(dataclasses.replace(made, is_stored=True), 1)
    assert {metric.kind for metric in metrics_data(stored)} == {"stored"}
    assert "6" in status_sentence(record)
    assert record.memory[-1] == made.entries[1].generation.memory
