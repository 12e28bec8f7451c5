"""Controls refuse what they cannot take; results leave as JSON and CSV without losing a number."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest

from kvviz.errors import ConfigError
from kvviz.experiment import Control, ExperimentInfo, LabResult, table
from tests.builders import make_facts

TOKENS = Control("tokens", "int", 64, low=2, high=512)
KINDS = Control("kinds", "choices", ("natural",), options=("natural", "random"))
MODE = Control("mode", "choice", "original", options=("original", "in_cache"))
DEEP = Control("deep", "flag", False)
INFO = ExperimentInfo("made-up", (TOKENS, KINDS, MODE, DEEP))


def test_settings_take_given_values_and_defaults():
    assert INFO.settings({"tokens": 100.0, "kinds": ["random", "natural"]}) == {
        "tokens": 100, "kinds": ["natural", "random"], "mode": "original", "deep": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("control", "words", "value"),
    [
        (TOKENS, "512", 512),
        (KINDS, "random, natural", ["natural", "random"]),
        (MODE, " in_cache ", "in_cache"),
        (DEEP, "True", True),
        (DEEP, "false", False),
    ],
)
def test_what_is_typed_is_read(control, words, value):
    assert control.parse(words) == value


@pytest.mark.parametrize(
    ("control", "words", "part"),
    [
        (TOKENS, "1", "tokens"),
        (TOKENS, "513", "512"),
        (TOKENS, "many", "many"),
        (TOKENS, "2.5", "whole number from"),
        (TOKENS, "--5", "--5"),
        (TOKENS, "٣٢", "٣٢"),
        (TOKENS, "9" * 5000, "999"),
        (KINDS, "", "natural, random"),
        (KINDS, "natural,poem", "poem"),
        (MODE, "wrong", "original, in_cache"),
        (DEEP, "perhaps", "perhaps"),
    ],
)
def test_what_cannot_be_taken_is_refused_in_a_sentence(control, words, part):
    with pytest.raises(ConfigError) as refused:
        control.parse(words)
    assert part in str(refused.value)


def test_numbers_that_are_not_whole_or_not_numbers_are_refused():
    for value in (2.5, math.nan, math.inf, True, "64"):
        with pytest.raises(ConfigError):
            TOKENS.check(value)


def test_an_unknown_setting_is_refused():
    with pytest.raises(ConfigError, match=r"experiment .* tokens, kinds, mode, deep"):
        INFO.settings({"size": 3})


def result() -> LabResult:
    return LabResult(
        "made-up",
        INFO.settings({}),
        make_facts(),
        "ab" * 32,
        "Found.",
        {
            "main": table([("layer", "count"), ("share", "share"), ("token", "text")], [(0, 1 / 3, 'a,"b"')]),
            "rest": table([("ppl", "ppl")], [(math.inf,), (None,)]),
        },
        {"mass": np.asarray([[1 / 3, math.nan]], dtype=np.float32), "at": np.arange(2)},
        {"names": ["x"]},
        12.5,
    )


def test_json_holds_everything_and_nothing_that_is_not_finite():
    plain = json.loads(result().to_json())
    assert plain["tables"]["main"] == [{"layer": 0, "share": 1 / 3, "token": 'a,"b"'}]
    assert plain["tables"]["rest"] == [{"ppl": None}, {"ppl": None}]
    assert plain["arrays"] == {"mass": [[0.333333, None]], "at": [0, 1]}
    assert plain["settings"]["tokens"] == 64
    assert plain["model"]["weights_hash"] == make_facts().weights_hash
    assert (plain["elapsed_ms"], plain["marks"]) == (12.5, {"names": ["x"]})


def test_csv_is_one_file_a_table_with_all_digits():
    files = result().to_csv()
    assert list(files) == ["made-up-main.csv", "made-up-rest.csv"]
    rows = list(csv.reader(io.StringIO(files["made-up-main.csv"])))
    assert rows == [["layer", "share", "token"], ["0", repr(1 / 3), 'a,"b"']]


def test_a_column_by_key():
    assert result().tables["main"].column("share") == [1 / 3]
