"""``compare`` in a terminal: configurations from words, one JSON value, a table for people."""

from __future__ import annotations

import json

import pytest

from kvviz.__main__ import main
from kvviz.cli.compare import read_configuration
from kvviz.comparison import Comparison
from kvviz.config import CacheConfig, Middle
from kvviz.errors import ConfigError
from kvviz.presets import preset, preset_label
from tests.cli.test_commands import TINY, answer, refusal

COMPARE = ["compare", "--prompt", "one two three", "--max-new-tokens", "5", "--no-chat", *TINY]
SCORED = ["--start", "0", "--length", "200", "--skip", "40"]


def read(words):
    return read_configuration(words, preset, preset_label)


def test_a_preset_settings_or_both():
    assert read("full-stack") == (preset_label("full-stack"), preset("full-stack"))
    label, cache = read("kivi-4, window=64")
    assert cache.window_size == 64
    assert cache.key == preset("kivi-4").key
    assert "window=64" in label
    assert read("middle=evict,sink=0,window=9")[1] == CacheConfig(0, 9, Middle.EVICT)
    assert read("middle=quantize,key=int4:channel:g32:minmax")[1].key.spec == "int4:channel:g32:minmax"


@pytest.mark.parametrize(
    "words", ["nothing", "full,whatever=3", "full,window", "window=-1", "middle=evict,window=x"]
)
def test_what_is_no_configuration_is_refused(words):
    with pytest.raises(ConfigError):
        read(words)


def test_one_json_value(capsys):
    evicting = "middle=evict,sink=0,window=20"
    found = answer(capsys, *COMPARE, *SCORED, "--config", "full", "--config", evicting)
    again = Comparison.from_json(json.dumps(found))
    assert again.is_stored
    assert [entry.label for entry in again.entries] == [
        preset_label("full"), "middle=evict, sink=0, window=20",
    ]  # fmt: skip
    assert again.entries[0].score.kl == 0
    assert again.entries[1].score.kl > 0
    assert again.text.rows == 200 - 1 - 40
    assert found["numbers"]["generated"] == [5, 5]


def test_a_table_for_people(capsys):
    assert main([*COMPARE, "--text", "none", "--config", "full", "--config", "full"]) == 0
    out = capsys.readouterr().out
    assert "same text as A for all 5 tokens" in out
    assert "Perplexity" in out
    assert "–" in out


def test_refusals_are_one_sentence(capsys):
    assert "4" in refusal(capsys, *COMPARE, *["--config", "full"] * 5)
    assert "nothing" in refusal(capsys, *COMPARE, "--config", "nothing")
    assert "no_such_file" in refusal(capsys, *COMPARE, "--text", "no_such_file", "--config", "full")
    assert "skip" in refusal(capsys, *COMPARE, "--length", "9", "--skip", "9", "--config", "full")
