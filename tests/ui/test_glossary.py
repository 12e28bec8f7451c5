"""The glossary: every word has its place and is told in each language, and shown as it stands."""

from __future__ import annotations

import re

import pytest

from kvviz.catalogue import keys, languages, speaking
from kvviz.ui.glossary import dialog, entry, order

PARTS = ("name", "also", "means")


def placed() -> list[str]:
    return [key for group in order().values() for key in group]


def test_every_word_is_placed_once_and_every_group_is_named() -> None:
    told = {key.split(".")[2] for key in keys() if key.startswith("glossary.term.")}
    assert sorted(placed()) == sorted(told)
    assert {f"glossary.group.{group}" for group in order()} <= keys()


@pytest.mark.parametrize("name", languages())
def test_every_word_has_a_meaning_and_synonyms(name: str) -> None:
    with speaking(name):
        for key in placed():
            word = entry(key)
            assert all((word.name, word.also, word.means)), key
            assert word.means[-1] in ".。", key
            assert word.name.lower() != word.also.lower(), key


@pytest.mark.parametrize(
    "word", ["attention sink", "StreamingLLM", "perplexity", "GQA", "residual_length", "TTFT"]
)
def test_words_of_papers_and_libraries_are_found_in_each_language(word: str) -> None:
    for name in languages():
        with speaking(name):
            found = " ".join(re.sub(r"<[^>]*>", " ", dialog()).split()).lower()
        assert word.lower() in found or (name == "zh" and word == "perplexity" and "困惑度" in found)


def test_the_markup_holds_each_word_and_no_template() -> None:
    markup = dialog()
    assert markup.count("<dt>") == len(placed())
    assert not re.search(r"\$\{|\{\{", markup), "gradio would fill a template"
