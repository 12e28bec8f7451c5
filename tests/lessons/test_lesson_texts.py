"""Every lesson says all it has to say, in both languages, with fields that are filled."""

from __future__ import annotations

import json
import string
from pathlib import Path

import pytest

from kvviz.catalogue import ASSETS_DIR
from kvviz.lessons import LESSONS, Choice, Estimate, Lesson, Pick

LANGUAGES = ("en", "zh")
ENDINGS = {"en": ".", "zh": "。"}


def said(language: str, key: str) -> dict[str, str]:
    """A lesson's texts, flat."""
    path = ASSETS_DIR / "text" / language / f"lesson_{key}.json"
    flat: dict[str, str] = {}

    def walk(prefix: str, node: object) -> None:
        if isinstance(node, dict):
            for name, child in node.items():
                walk(f"{prefix}.{name}" if prefix else name, child)
        else:
            flat[prefix] = str(node)

    walk("", json.loads(path.read_text(encoding="utf-8")))
    return flat


def wanted(lesson: Lesson) -> set[str]:
    """Keys of all that it may have to say."""
    root = f"lesson.{lesson.key}"
    keys = {f"{root}.{name}" for name in ("title", "story", "look_for", "explain")}
    for question in lesson.questions:
        at = f"{root}.q.{question.key}"
        keys.add(f"{at}.ask")
        match question:
            case Estimate():
                keys.add(f"{at}.found")
            case Choice():
                keys |= {
                    f"{at}.{kind}.{option}" for kind in ("option", "found") for option in question.options
                }
            case Pick():
                keys |= {f"{at}.option.{option}" for option in question.options}
                keys |= {f"{at}.{name}" for name in ("best", "found", "refused", "none")}
    return keys


def fields(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.key)
@pytest.mark.parametrize("language", LANGUAGES)
def test_it_says_everything_and_nothing_else(lesson, language):
    assert set(said(language, lesson.key)) == wanted(lesson)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.key)
def test_both_languages_quote_the_same_numbers(lesson):
    english, chinese = (said(language, lesson.key) for language in LANGUAGES)
    for key in english:
        assert fields(english[key]) == fields(chinese[key]), key
        assert english[key] != chinese[key], f"{key} is not translated"


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.key)
@pytest.mark.parametrize("language", LANGUAGES)
def test_sentences_are_whole(lesson, language):
    for key, sentence in said(language, lesson.key).items():
        if ".found" in key or key.endswith((".story", ".explain", ".look_for")):
            assert sentence.rstrip().endswith(ENDINGS[language]), key


def test_a_verdict_quotes_a_measured_number():
    for lesson in LESSONS:
        for key, sentence in said("en", lesson.key).items():
            if ".found" in key:
                assert fields(sentence), f"{key} says nothing of the run"


def test_the_page_s_own_words_are_in_both_languages():
    files = [Path(ASSETS_DIR / "text" / language) for language in LANGUAGES]
    for name in ("lessons.json", "lab_lessons.json"):
        english, chinese = (json.loads((folder / name).read_text(encoding="utf-8")) for folder in files)

        def shape(node):
            if isinstance(node, dict):
                return {key: shape(child) for key, child in node.items()}
            return fields(str(node))

        assert shape(english) == shape(chinese)
