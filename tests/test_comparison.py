"""A comparison's numbers, its verdicts, and what its JSON refuses."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from kvviz.catalogue import text
from kvviz.comparison import MEASURES, Comparison
from kvviz.comparison_request import ComparisonRequest, TextSlice
from kvviz.comparison_words import (
    Verdict,
    cache_words,
    cell_words,
    format_change,
    measure_info,
    measure_label,
    verdict,
    verdict_line,
)
from kvviz.config import CacheConfig, SamplingConfig
from kvviz.errors import ConfigError, KvvizError
from tests.builders import EVICT, FULL, STACK
from tests.comparisons import make_comparison


def test_json_gives_the_same_again_and_says_that_it_is_stored():
    made = make_comparison()
    read = Comparison.from_json(made.to_json())
    assert read.is_stored
    assert dataclasses.replace(read, is_stored=False) == made
    assert {row.kind for row in made.rows()} == {"measured", "computed"}
    assert {row.kind for row in read.rows()} == {"stored"}
    assert [row.values for row in read.rows()] == [row.values for row in made.rows()]
    assert read.asked == made.asked


def test_the_file_carries_the_numbers_of_the_table():
    made = make_comparison()
    plain = json.loads(made.to_json())
    assert plain["numbers"] == {row.measure.key: list(row.values) for row in made.rows()}
    assert "is_stored" not in plain


def test_numbers_are_those_of_the_parts():
    made = make_comparison()
    full, stack = made.entries
    tokens = stack.generation.memory.tokens
    per_token = 2 * 2 * 2 * 16  # K and V, layers, KV heads, head_dim
    assert made.value("kv_bytes", 1) == stack.generation.memory.used_bytes
    assert made.value("full_16bit_bytes", 1) == per_token * tokens * 2
    assert made.value("ratio_16bit", 1) == per_token * tokens * 2 / stack.generation.memory.used_bytes
    assert made.value("ratio_own", 1) == 2 * made.value("ratio_16bit", 1)
    assert made.value("ratio_own", 0) == 1
    assert made.value("ppl_change", 1) == pytest.approx(stack.score.ppl / made.text.ppl - 1)
    assert made.value("divergence", 0) is None
    assert made.value("divergence", 1) == 2
    assert full.score.kl == 0


def test_without_a_text_there_is_no_score():
    made = make_comparison(scored=False)
    assert made.value("ppl", 1) is None
    assert made.value("ppl_change", 1) is None
    assert Comparison.from_json(made.to_json()).text is None


@pytest.mark.parametrize("count", [0, 5])
def test_one_to_four_configurations(count):
    with pytest.raises(ConfigError, match=str(count)):
        ComparisonRequest("hello", tuple(("x", FULL) for _ in range(count)))


@pytest.mark.parametrize(
    "values",
    [{"skip": 7, "length": 8}, {"start": -1}, {"length": 1, "skip": 0}, {"skip": -1}, {"length": True}],
)
def test_a_text_slice_must_leave_rows_to_count(values):
    with pytest.raises(ConfigError):
        TextSlice("pydoc-topics", **values)


def test_a_request_is_the_same_again():
    request = ComparisonRequest(
        "hello", (("a", FULL), ("b", STACK), ("c", EVICT)), False, 5, SamplingConfig(0.5, 0.9, 3), 16,
        TextSlice("code", 1, 100, 20),
    )  # fmt: skip
    assert ComparisonRequest.from_dict(json.loads(json.dumps(request.to_dict()))) == request
    assert [run.label for run in request.runs] == ["a", "b", "c"]
    assert {run.max_new_tokens for run in request.runs} == {5}


# -- verdicts ----------------------------------------------------------------------------------------


def told(**changes):
    plain = {
        "ratio_16bit": 4.9, "ratio_own": 9.8, "dtype": "float32", "ppl_change": 0.013, "divergence": 41,
        "generated": 64, "is_first": False, "failed": False,
    }  # fmt: skip
    return Verdict(**(plain | changes))


def test_a_verdict_is_computed_from_the_numbers():
    assert verdict_line(told()) == (
        "4.90× smaller than in 16 bits (9.80× smaller than float32) · perplexity +1.30 % · "
        "diverges from A at token 41"
    )
    assert "larger" in verdict_line(told(ratio_16bit=0.5, ratio_own=1.0))
    assert "2.00× larger than in 16 bits (full float32 size)" in verdict_line(
        told(ratio_16bit=0.5, ratio_own=1.0)
    )
    assert "perplexity as in full precision" in verdict_line(told(ppl_change=-4e-5))
    assert "-0.40 %" in verdict_line(told(ppl_change=-0.004))
    assert "same text as A for all 64 tokens" in verdict_line(told(divergence=None))
    assert "token" not in verdict_line(told(is_first=True, divergence=None))
    assert "float32" not in verdict_line(told(ratio_own=4.9))
    assert "failed" in verdict_line(told(failed=True))


def test_a_verdict_of_nothing_says_so():
    nothing = told(ratio_16bit=None, ratio_own=None, ppl_change=None, divergence=None, generated=0)
    assert verdict_line(nothing) == text("compare.verdict.nothing")
    assert "perplexity" not in verdict_line(told(ppl_change=None))


def test_the_verdict_of_an_entry():
    found = verdict(make_comparison(), 1)
    assert found.divergence == 2
    assert not found.is_first
    assert found.ratio_own == pytest.approx(2 * found.ratio_16bit)
    assert found.ppl_change == pytest.approx(math.exp(0.1) - 1)


def test_every_number_has_words():
    made = make_comparison()
    for row in made.rows():
        assert measure_label(row.measure, "float32")
        assert "{" not in measure_info(row.measure, "float32")
        assert all(cell_words(value, row.measure.unit) for value in row.values)
        assert cell_words(None, row.measure.unit) == "–"
    assert len({measure.key for measure in MEASURES}) == len(MEASURES)
    assert format_change(0.0131) == "+1.31 %"


def test_settings_in_a_line():
    assert cache_words(CacheConfig()) == "middle=keep"
    assert cache_words(STACK) == (
        "middle=quantize · sinks=2 · window=3 · block=2 · K=int8:token:g16:absmax · V=int4:token:g16:minmax"
        " · offload=host"
    )


# -- hostile files -----------------------------------------------------------------------------------


def broken(change):
    plain = json.loads(make_comparison().to_json())
    change(plain)
    return json.dumps(plain)


def put(*path_and_value):
    *path, value = path_and_value

    def change(plain):
        for part in path[:-1]:
            plain = plain[part]
        plain[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "content",
    [
        "", "[", "null", "[]", "{}", '{"format": "else"}', "[" * 100_000,
        broken(put("version", 99)),
        broken(put("entries", [])),
        broken(put("entries", 0, "label", "another")),
        broken(put("entries", 0, "cache", "sink_size", -1)),
        broken(put("entries", 0, "cache", {"no": "cache"})),
        broken(put("entries", 1, "score", "nll", [1.0])),
        broken(put("entries", 1, "score", "ppl", "11")),
        broken(put("entries", 1, "generation", "labels", [["x", "zz"]] * 6)),
        broken(put("entries", 1, "generation", "labels", [])),
        broken(put("text", None)),
        broken(put("text", "ppl", 0.0)),
        broken(put("request", "configurations", 7)),
        broken(put("request", "text", {"name": "x", "path": "/etc"})),
        broken(put("model", "n_layers", True)),
        broken(put("model", "n_layers", 10**400)),
        make_comparison().to_json().replace('"elapsed_ms": 1234.5', '"elapsed_ms": NaN'),
        make_comparison().to_json().replace('"elapsed_ms": 1234.5', '"elapsed_ms": 1e999'),
    ],
)  # fmt: skip
def test_what_is_no_comparison_is_refused_in_a_sentence(content):
    with pytest.raises(KvvizError) as refused:
        Comparison.from_json(content)
    assert len(str(refused.value)) < 400
