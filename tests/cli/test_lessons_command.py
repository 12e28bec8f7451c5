"""Lessons in a terminal: listed, and their runs made."""

from __future__ import annotations

import json

import pytest

from kvviz import lessons
from kvviz.__main__ import main
from kvviz.lessons import stored


def test_lessons_are_listed_with_their_runs(capsys):
    assert main(["lessons", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["lesson"] for entry in listed] == lessons.lesson_keys()
    assert all(task["stored"] for entry in listed for task in entry["tasks"])
    assert main(["lessons", "list"]) == 0
    assert "sink / sink" in capsys.readouterr().out


@pytest.mark.timeout(60)
def test_a_run_is_made_and_stored(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "FOLDER", tmp_path)
    command = ["lessons", "record", "arithmetic-128", "--model", "tiny-random-llama", "--json"]
    assert main(command) == 0
    captured = capsys.readouterr()
    (written,) = json.loads(captured.out)
    assert written["bytes"] == (tmp_path / "arithmetic-128.json").stat().st_size
    assert "arithmetic-128.json" in captured.err
    result = lessons.load("arithmetic-128")
    assert result.model.name == "tiny-random-llama"
    assert result.settings["length"] == 128


def test_an_unknown_run_is_refused_before_a_model_is_loaded(capsys):
    assert main(["lessons", "record", "poetry"]) == 2
    assert "poetry" in capsys.readouterr().err
