"""The laboratory from a terminal: what is listed, what is found, what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from kvviz import lab
from kvviz.__main__ import main

TINY = ["--model", "tiny-random-llama"]
SMALL = ["--set", "length=300", "--set", "budget=40", "--set", "skip=60", "--set", "sinks=0,4"]


def answer(capsys, *arguments):
    assert main(["lab", *arguments, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def test_the_list_has_every_experiment_with_its_settings(capsys):
    listed = answer(capsys)
    assert [entry["name"] for entry in listed] == lab.experiment_names()
    for entry, info in zip(listed, lab.experiments(), strict=True):
        assert entry["question"].endswith("?")
        assert list(entry["settings"]) == [control.key for control in info.controls]
    assert main(["lab"]) == 0
    words = capsys.readouterr().out
    assert all(f"{name}: " in words for name in lab.experiment_names())


def test_a_result_as_json_and_csv(capsys, tmp_path: Path):
    found = answer(capsys, "eviction", *SMALL, *TINY, "--csv", str(tmp_path / "new" / "folder"))
    assert found["experiment"] == "eviction"
    assert found["settings"]["length"] == 300
    assert found["settings"]["sinks"] == ["0", "4"]
    rows = found["tables"]["configurations"]
    assert len(rows) == 3
    assert len(found["arrays"]["nll"]) == 3
    with (tmp_path / "new" / "folder" / "eviction-configurations.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [float(row["ppl"]) for row in written] == [row["ppl"] for row in rows]
    assert found["model"]["name"] == "tiny-random-llama"


def test_a_result_for_people(capsys):
    assert main(["lab", "eviction", *SMALL, *TINY]) == 0
    captured = capsys.readouterr()
    assert "By configuration" in captured.out
    assert "tokens read" in captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["poetry"], "eviction"),
        (["eviction", "--set", "length"], "key=value"),
        (["eviction", "--set", "colour=3"], "budget"),
        (["eviction", "--set", "length=long"], "long"),
        (["eviction", "--set", "sinks="], "0, 1, 2, 4, 8"),
    ],
)
def test_refusals_are_one_sentence(capsys, arguments, words):
    assert main(["lab", *arguments, *TINY]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_a_file_in_the_way_of_the_folder_is_told(capsys, tmp_path: Path):
    (tmp_path / "taken").write_text("")
    assert main(["lab", "eviction", *SMALL, *TINY, "--csv", str(tmp_path / "taken")]) == 2
    assert "taken" in capsys.readouterr().err.splitlines()[-1]
