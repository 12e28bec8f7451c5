"""Stored runs: results of tasks on the default model, as files that need no model to be shown.

Knows the format, not who made a run. A file holds the default language's names of configurations and the
like; they are looked up in the catalogue and said in the page's language when the file is read. Floats keep
seven significant digits in tables and five in arrays.
"""

from __future__ import annotations

import dataclasses
import json
import re
import string
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvviz.catalogue import ASSETS_DIR, DEFAULT_LANGUAGE, keys, text
from kvviz.errors import KvvizError
from kvviz.events import ModelFacts
from kvviz.experiment import Column, LabResult, Table
from kvviz.lessons.lesson import Task

STORED_VERSION = 1
FOLDER = ASSETS_DIR / "lessons"
_TABLE_DIGITS, _ARRAY_DIGITS = 7, 5
#: what a file holds of a result, in its order
_FIELDS = ("experiment", "settings", "model", "text_sha256", "finding", "elapsed_ms", "tables", "arrays",
           "marks", "configurations")  # fmt: skip


def stored_path(name: str) -> Path:
    """Where the stored run of a task is."""
    return FOLDER / f"{name}.json"


def has_stored(task: Task) -> bool:
    """True when a run is stored that was made with the task's settings."""
    if not stored_path(task.name).exists():
        return False
    result = load(task.name)
    made_with = {key: result.settings.get(key) for key in task.settings}
    return result.experiment == task.experiment and made_with == dict(task.settings)


def load(name: str, language: str = DEFAULT_LANGUAGE) -> LabResult:
    """The stored run of a task in a language's words.

    Raises:
        KvvizError: there is none, or the file is not of this version or not whole.
    """
    return _load(stored_path(name), language)


@cache
def _load(path: Path, language: str) -> LabResult:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KvvizError("lesson_stored", name=path.stem, reason=type(error).__name__) from error
    result = unpack(plain, path.stem)
    return result if language == DEFAULT_LANGUAGE else said_in(result, language)


def save(result: LabResult, name: str) -> Path:
    """Write a task's result."""
    path = stored_path(name)
    path.parent.mkdir(exist_ok=True)
    plain = json.dumps(pack(result), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    path.write_text(plain + "\n", encoding="utf-8")
    _load.cache_clear()
    return path


def pack(result: LabResult) -> dict[str, Any]:
    """Plain JSON values."""
    plain = {
        "experiment": result.experiment,
        "settings": result.settings,
        "model": dataclasses.asdict(result.model),
        "text_sha256": result.text_sha256,
        "finding": result.finding,
        "elapsed_ms": _short(result.elapsed_ms, _TABLE_DIGITS),
        "tables": {name: _plain_table(table) for name, table in result.tables.items()},
        "arrays": {name: _plain_array(values) for name, values in result.arrays.items()},
        "marks": _short(result.marks, _TABLE_DIGITS),
        "configurations": result.configurations,
    }
    return {"version": STORED_VERSION, "result": {field: plain[field] for field in _FIELDS}}


def unpack(plain: Any, name: str) -> LabResult:
    """What :func:`pack` made.

    Raises:
        KvvizError: another version, or a field is missing.
    """
    try:
        if plain["version"] != STORED_VERSION:
            raise KvvizError("lesson_stored", name=name, reason=f"version {plain['version']}")
        fields: dict[str, Any] = {field: plain["result"][field] for field in _FIELDS}
        fields["model"] = ModelFacts(**fields["model"])
        fields["tables"] = {key: _table(value) for key, value in fields["tables"].items()}
        fields["arrays"] = {key: _array(value) for key, value in fields["arrays"].items()}
        return LabResult(**fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise KvvizError("lesson_stored", name=name, reason=f"{type(error).__name__}: {error}") from error


def _plain_table(table: Table) -> dict[str, Any]:
    return {
        "columns": [[column.key, column.unit] for column in table.columns],
        "rows": [[_short(cell, _TABLE_DIGITS) for cell in row] for row in table.rows],
    }


def _table(plain: dict[str, Any]) -> Table:
    columns = tuple(Column(key, unit) for key, unit in plain["columns"])
    return Table(columns, tuple(tuple(row) for row in plain["rows"]))


def _plain_array(values: NDArray[Any]) -> dict[str, Any]:
    flat = [_short(value, _ARRAY_DIGITS) for value in values.ravel().tolist()]
    return {"dtype": str(values.dtype), "shape": list(values.shape), "values": flat}


def _array(plain: dict[str, Any]) -> NDArray[Any]:
    values = [np.nan if value is None else value for value in plain["values"]]
    return np.array(values, dtype=plain["dtype"]).reshape(plain["shape"])


def _short(value: Any, digits: int) -> Any:
    """Floats with so many significant digits; what is not finite becomes None."""
    if isinstance(value, dict):
        return {str(key): _short(child, digits) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(child, digits) for child in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if np.isfinite(value) else None
    return value


# -- languages -----------------------------------------------------------------------------------------


def said_in(result: LabResult, language: str) -> LabResult:
    """The same numbers with the experiment's own words in another language; other words stay."""
    say = _Translator(result.experiment, language)
    tables = {
        name: Table(
            table.columns,
            tuple(
                tuple(
                    say(cell) if column.unit == "text" and isinstance(cell, str) else cell
                    for cell, column in zip(row, table.columns, strict=True)
                )
                for row in table.rows
            ),
        )
        for name, table in result.tables.items()
    }
    configurations = {say(name): plain for name, plain in result.configurations.items()}
    return replace(result, tables=tables, marks=say.all(result.marks), configurations=configurations)


class _Translator:
    """Finds which sentence of the default language some words are, and says it in another."""

    def __init__(self, experiment: str, language: str) -> None:
        self._language = language
        own = (key for key in sorted(keys()) if key.startswith(f"lab.{experiment}."))
        patterns = [(key, *_pattern(text(key, DEFAULT_LANGUAGE))) for key in own]
        self._patterns = sorted(patterns, key=lambda known: -known[2])  # the most literal one wins

    def __call__(self, words: str) -> str:
        for key, pattern, literal in self._patterns:
            match = pattern.fullmatch(words) if literal else None
            if match is not None:
                return text(key, self._language, **match.groupdict())
        return words

    def all(self, value: Any) -> Any:
        """Every string in lists and under keys."""
        if isinstance(value, dict):
            return {key: self.all(child) for key, child in value.items()}
        if isinstance(value, list):
            return [self.all(child) for child in value]
        return self(value) if isinstance(value, str) else value


def _pattern(sentence: str) -> tuple[re.Pattern[str], int]:
    """A sentence with fields as a pattern, and how many characters of it are literal."""
    parts, literal, seen = [], 0, set()
    for words, name, _, _ in string.Formatter().parse(sentence):
        literal += len(words)
        parts.append(re.escape(words))
        if name:
            parts.append(f"(?P={name})" if name in seen else f"(?P<{name}>.+?)")
            seen.add(name)
    return re.compile("".join(parts)), literal
