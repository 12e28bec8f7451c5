"""Every sentence that code asks for exists, with the fields that the code fills."""

from __future__ import annotations

import ast
import string
from pathlib import Path

import pytest

from kvviz.catalogue import keys, text

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [*sorted((ROOT / "kvviz").rglob("*.py")), *ROOT.glob("app.py")]
ERRORS = {"KvvizError", "ConfigError", "ModelError"}


def calls() -> list[tuple[str, ast.Call, str]]:
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                found.append((name, node, f"{path.relative_to(ROOT)}:{node.lineno}"))
    return found


def asked() -> list[tuple[str, ast.Call, str]]:
    """(key, call, place) of each literal key of ``text(...)`` and each literal code of an error."""
    found = []
    for name, node, place in calls():
        literal = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if not isinstance(literal, str):
            continue
        if name == "text":
            found.append((literal, node, place))
        elif name in ERRORS:
            found.append((f"error.{literal}", node, place))
    return found


def test_something_is_asked_for():
    assert len(asked()) > 30


def test_every_key_exists():
    missing = [(key, place) for key, _, place in asked() if key not in keys()]
    assert missing == []


def test_every_field_is_filled():
    wrong = []
    for key, node, place in asked():
        if any(keyword.arg is None for keyword in node.keywords) or key not in keys():
            continue
        fields = {name for _, name, _, _ in string.Formatter().parse(text(key)) if name}
        given = {keyword.arg for keyword in node.keywords}
        if not fields <= given:
            wrong.append((key, sorted(fields - given), place))
    assert wrong == []


def test_every_error_sentence_is_used():
    used = {key for key, _, _ in asked() if key.startswith("error.")}
    literals = {
        node.value
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    unused = {k for k in keys() if k.startswith("error.") and k not in used}
    assert {k for k in unused if k.removeprefix("error.") not in literals} == set()


def test_a_missing_sentence_is_an_error_not_a_blank():
    with pytest.raises(KeyError):
        text("no.such.sentence")
