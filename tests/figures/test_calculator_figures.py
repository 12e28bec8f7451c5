"""Bars that add up to the GPU, and lines that are the peaks of the formula."""

from __future__ import annotations

import json

import pytest

from kvviz.calculator import Question, answer, model, peak_bytes
from kvviz.figures.calculator import context_figure, context_lines, fit_figure, segments
from kvviz.presets import preset

CASES = [("full", 1), ("k8v4", 4), ("kivi-2", 3), ("full-stack", 2), ("sinks-window", 5)]


def ask(name: str, users: int = 1, **more):
    return answer(Question(model("Llama-3-8B"), preset(name), users=users, page_size=16, **more))


@pytest.mark.parametrize(("name", "users"), CASES)
def test_a_row_that_fits_fills_the_gpu(name, users):
    found = ask(name, users, context_tokens=3000)
    assert found.fits
    shown = segments(found)
    for row in ("cache", "full"):
        assert sum(s.n_bytes for s in shown if s.row == row) == found.question.gpu_bytes
    assert sum(s.n_bytes for s in shown if s.row == "host") == found.host_bytes
    held = sum(s.n_bytes for s in shown if s.row == "cache" and s.tier)
    padding = sum(s.n_bytes for s in shown if s.part == "padding")
    assert held + padding == users * found.kv.bytes_on("device")


def test_what_does_not_fit_goes_beyond_the_gpu():
    found = ask("full", 16, context_tokens=8192)
    row = sum(s.n_bytes for s in segments(found) if s.row == "cache")
    assert row == found.question.gpu_bytes - found.left_bytes > found.question.gpu_bytes
    assert not [s for s in segments(found) if s.part == "left" and s.row == "cache"]


def test_lines_are_peaks_of_all_users():
    found = ask("k8v4", 3, context_tokens=5000)
    this, full = context_lines(found, {"16": preset("full")})
    assert this.tokens[-1] >= 4 * found.full_largest_context - 1
    at = 17
    assert this.n_bytes[at] == 3 * peak_bytes(found.question, this.tokens[at])
    assert full.n_bytes[at] == 3 * 131_072 * -(-full.tokens[at] // 16) * 16
    assert list(this.n_bytes) == sorted(this.n_bytes)


@pytest.mark.parametrize("name", ["full-stack", "sinks-window"])
def test_payloads_are_plain_json_and_flat_lines_are_flat(name):
    found = ask(name, context_tokens=30_000)
    (this,) = context_lines(found, {})
    assert len(set(this.n_bytes[-20:])) == 1
    for payload in (fit_figure(found), context_figure(found, {"16 <b>": preset("full")})):
        assert json.loads(json.dumps(payload, allow_nan=False))["data"]
    assert "16 &lt;b&gt;" in json.dumps(context_figure(found, {"16 <b>": preset("full")}))


def test_a_model_that_has_no_room_is_still_drawn():
    found = answer(Question(model("Llama-3-70B"), preset("k8v4")))
    assert found.room_bytes < 0
    assert fit_figure(found)["data"]
    assert context_figure(found, {})["data"]
