"""Both languages say everything, with the same fields; and no sentence hides outside the catalogue."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvviz.catalogue import DEFAULT_LANGUAGE, keys, languages, text

ROOT = Path(__file__).resolve().parent.parent
OTHERS = [name for name in languages() if name != DEFAULT_LANGUAGE]
CHINESE = re.compile(r"[\u4e00-\u9fff]")
#: Words that are the same in every language: names, units, code words, file formats.
SAME_WORDS = {
    "absmax", "minmax", "logits", "nats", "KIVI", "INT", "GiB", "MiB", "GPU", "CSV", "JSON", "HTML", "kvviz",
    "Top", "head_dim", "H_kv", "transformers", "DynamicCache", "QuantizedCache", "quanto", "HQQ",
}  # fmt: skip
#: Terms and synonyms are names in papers and libraries, often the same ones.
TERMS = re.compile(r"glossary\.term\.\w+\.(name|also)")
#: What a model reads must not depend on who looks on, or the measured numbers would.
READ_BY_THE_MODEL = {f"lab.recall.prompt.{part}" for part in ("before", "fact", "question", "answer")}
#: Commands and code that are written as they are.
QUOTED = ("python -m kvviz",)


def fields(sentence: str) -> list[str]:
    return sorted({name for _, name, _, _ in string.Formatter().parse(sentence) if name})


def bare(sentence: str) -> str:
    """Without fields and markup."""
    return re.sub(r"\{\w*\}|<[^>]*>", " ", sentence)


def test_there_are_english_and_chinese() -> None:
    assert languages() == ("en", "zh")


@pytest.mark.parametrize("name", OTHERS)
def test_a_language_says_what_the_default_one_says_and_nothing_else(name: str) -> None:
    assert sorted(keys() - keys(name)) == [], "missing"
    assert sorted(keys(name) - keys()) == [], "not in the default language"


@pytest.mark.parametrize("name", OTHERS)
def test_a_sentence_has_the_same_fields_and_markup_in_each_language(name: str) -> None:
    def skeleton(sentence: str) -> tuple[list[str], list[str]]:
        return fields(sentence), sorted(re.findall(r"<[^>]*>", sentence))

    both = keys() & keys(name)
    assert [key for key in sorted(both) if skeleton(text(key)) != skeleton(text(key, name))] == []


def untranslated(key: str) -> bool:
    """Words in English, and not a Chinese one."""
    said = text(key, "zh")
    words = re.findall(r"[A-Za-z_]{3,}", bare(text(key, "en")))
    if key in READ_BY_THE_MODEL or TERMS.fullmatch(key) or set(words) <= SAME_WORDS:
        return False
    return not CHINESE.search(said)


def test_no_sentence_is_left_untranslated() -> None:
    assert [key for key in sorted(keys()) if untranslated(key)] == []


def test_no_english_is_left_within_a_chinese_sentence() -> None:
    found = {}
    for key in filter(lambda key: not TERMS.fullmatch(key), keys("zh") - READ_BY_THE_MODEL):
        said = bare(text(key, "zh"))
        for quoted in QUOTED:
            said = said.replace(quoted, "")
        if run := re.search(r"(?:\b[A-Za-z]{2,} ){3,}", said):
            found[key] = run.group()
    assert found == {}


# -- nothing outside the catalogue -----------------------------------------------------------------------

ROOMS = ("ui", "figures")
#: Two words in a row, or one that begins like a sentence.
SENTENCE = re.compile(r"[A-Za-z]{2,},? [A-Za-z]{2,}|\b[A-Z][a-z]{2,}\b")
#: Fonts, keys of the keyboard, types, names of models, positions that plotly knows, headers,
#: scripts, a message to developers.
NO_WORDS = re.compile(
    r"Sans|PingFang|Segoe|Roboto|SF Mono|Escape|Enter|^Rail$|^Side$|^Llama-3-8B$"
    r"|^(top|middle|bottom) (left|center|right)$|is asynchronous|ended without a result"
    r"|^([A-Z][a-z]*-)+[A-Z][a-z]*$|^\(\(\) =>"
    r"|<[a-z]+( async)? [a-z-]+=|element, props|^input:not|^input, "
)
SCRIPT_LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`""", re.S
)
STYLED = re.compile(r"^(kv-\S+ ?)+$|^[a-z]+ [a-z]+$")  # class names and selectors


def literals(source: str) -> Iterator[str]:
    """What Python code says itself, docstrings and log messages apart."""
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.Call) and getattr(getattr(node.func, "value", None), "id", "") == "logger":
            skipped |= {id(argument) for argument in node.args}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def script_literals(source: str) -> Iterator[str]:
    """What a script says itself, comments apart."""
    for found in SCRIPT_LITERAL.finditer(source):
        said = next(filter(None, found.groups()), "")
        if not STYLED.match(said):
            yield re.sub(r"\$\{[^}]*\}", "", said)


def sentences(found: Iterator[str]) -> list[str]:
    return [said for said in found if SENTENCE.search(said) and not NO_WORDS.search(said)]


@pytest.mark.parametrize("room", ROOMS)
def test_no_words_for_people_stand_in_the_code(room: str) -> None:
    found = {
        str(path.relative_to(ROOT)): said
        for path in sorted((ROOT / "kvviz" / room).rglob("*.py"))
        if (said := sentences(literals(path.read_text(encoding="utf-8"))))
    }
    assert found == {}, "move them into assets/text/<language>/*.json"


def test_no_words_for_people_stand_in_the_scripts() -> None:
    found = {
        path.name: said
        for path in sorted((ROOT / "assets" / "js").glob("*.js"))
        if (said := sentences(script_literals(path.read_text(encoding="utf-8"))))
    }
    assert found == {}, "move them into assets/text/<language>/*.json and hand them in"


def test_the_search_for_words_finds_them() -> None:
    code = '''def f():
    """Says nothing."""
    logger.info("only a log")
    return gr.Button("Run all"), f"It took {x}"
'''
    assert sentences(literals(code)) == ["Run all", "It took "]
    script = "// A comment here\nnode.textContent = \"No runs\"; make('p', 'kv-a kv-b', `Layer ${n} chosen`)"
    assert sentences(script_literals(script)) == ["No runs", "Layer  chosen"]
