"""Stored runs: whole, small, made with the lessons' settings, and said in both languages."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from kvviz import lessons
from kvviz.errors import KvvizError
from kvviz.figures.lab import lab_panels
from kvviz.lessons import LESSONS, Choice, Estimate, Evidence, Pick, check
from kvviz.lessons import stored as files
from kvviz.lessons.stored import pack, said_in, unpack

MOST_BYTES = 2 << 20


def evidence_of(lesson, language="en"):
    return Evidence({task.name: lessons.load(task.name, language) for task in lesson.tasks})


@pytest.mark.parametrize("name", list(lessons.tasks()))
def test_every_task_is_stored_with_its_settings(name):
    assert lessons.has_stored(lessons.tasks()[name])
    result = lessons.load(name)
    assert result.model.name == "SmolLM2-135M-Instruct"
    assert result.model.weights_hash.startswith("b179c952")
    assert result.elapsed_ms > 0


def test_they_are_small_and_nothing_else_is_there():
    stored = {path.stem: path.stat().st_size for path in files.FOLDER.iterdir()}
    assert set(stored) == set(lessons.tasks())
    assert sum(stored.values()) < MOST_BYTES


@pytest.mark.parametrize("name", list(lessons.tasks()))
def test_a_file_says_what_its_result_says(name):
    plain = json.loads(lessons.stored_path(name).read_text(encoding="utf-8"))
    assert pack(unpack(plain, name)) == plain


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.key)
def test_figures_and_tables_are_there(lesson):
    evidence = evidence_of(lesson)
    for task, panel in lesson.figures:
        assert panel in [made.key for made in lab_panels(evidence.results[task])]
    for task, name in lesson.tables:
        assert evidence.results[task].tables[name].rows
    assert all(made.rows for made in lesson.computed(evidence).values())


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.key)
def test_every_prediction_is_answered_in_words(lesson):
    evidence = evidence_of(lesson)
    assert lessons.story(lesson, evidence)
    assert lessons.explanation(lesson, evidence)
    for question in lesson.questions:
        assert lessons.prompt(lesson, question, evidence)
        match question:
            case Choice() | Pick():
                answers = list(question.options)
            case Estimate():
                truth = question.truth(evidence)
                answers = [truth, 3 * truth]
        kinds = []
        for answer in answers:
            verdict = check(question, answer, evidence)
            kinds.append(verdict.kind)
            words = lessons.feedback(lesson, question, verdict, evidence)
            assert words
            assert "{" not in words
        assert "right" in kinds, "some answer is right"
        assert "wrong" in kinds, "some answer is wrong"


@pytest.mark.parametrize("name", list(lessons.tasks()))
def test_names_are_said_in_another_language_and_numbers_stay(name):
    english, chinese = lessons.load(name), lessons.load(name, "zh")
    for table in english.tables:
        for column in english.tables[table].columns:
            if column.unit != "text":
                assert english.tables[table].column(column.key) == chinese.tables[table].column(column.key)
    for array in english.arrays:
        assert np.array_equal(english.arrays[array], chinese.arrays[array], equal_nan=True)
    if english.experiment == "caches":
        assert english.marks["labels"] != chinese.marks["labels"]
        assert chinese.tables["caches"].column("scheme_name") == chinese.marks["labels"]
        assert list(chinese.configurations) == chinese.marks["labels"]


def test_words_that_no_sentence_has_stay(tmp_path):
    result = lessons.load("sink")
    other = replace(result, marks={"labels": ["no sentence of any catalogue ✗"], "n": 3})
    assert said_in(other, "zh").marks == other.marks


def changed(**fields):
    """A whole file with some fields of its result changed."""
    return lambda plain: plain | {"result": plain["result"] | fields}


BROKEN = [
    lambda plain: plain | {"version": 99},
    lambda plain: {},
    lambda plain: [],
    lambda plain: {"version": 1, "result": {}},
    changed(model={"name": "x"}),
    changed(tables={"a": {"rows": []}}),
    changed(arrays={"a": {"dtype": "float64", "shape": [2], "values": [1]}}),
]


@pytest.mark.parametrize("break_it", BROKEN)
def test_a_broken_file_is_refused_in_a_sentence(break_it):
    plain = json.loads(lessons.stored_path("sink").read_text(encoding="utf-8"))
    with pytest.raises(KvvizError, match="record sink"):
        unpack(break_it(plain), "sink")


def test_a_missing_file_is_refused_in_a_sentence():
    with pytest.raises(KvvizError, match="nowhere"):
        lessons.load("nowhere")


def test_saving_and_loading(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FOLDER", tmp_path / "new")
    result = lessons.load  # the real folder is not touched
    made = unpack(json.loads((files.ASSETS_DIR / "lessons" / "sink.json").read_text("utf-8")), "sink")
    values = made.arrays | {"odd": np.array([np.nan, 1 / 3])}
    lessons.save(replace(made, arrays=values), "mine")
    again = result("mine")
    assert again.tables == made.tables
    assert np.array_equal(again.arrays["odd"], [np.nan, 0.33333], equal_nan=True)
    files._load.cache_clear()
