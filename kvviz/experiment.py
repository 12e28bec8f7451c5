"""What can be asked of the laboratory, and what it answers: controls, progress, tables, a result, exports.

Plain values and numpy arrays; knows no model, no drawing and no page. Experiments are in ``kvviz.lab``.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvviz.errors import ConfigError
from kvviz.events import ModelFacts
from kvviz.quant_config import QuantConfig

Kind = Literal["int", "choice", "choices", "flag", "quantizer"]
#: Which tab of the page offers an experiment; ``lesson`` is met in the lessons, ``speed`` is for the terminal
#: alone.
Group = Literal["sink", "quant", "lesson", "speed"]
#: Controls that say how long a text is.
_TEXT_LENGTHS = ("length", "other_length", "learn_tokens", "tokens")
#: A whole number of a size that some control could take; all else is refused in the words it came in.
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
#: How a column's numbers are read: ``share`` is 0..1, ``nats`` and ``norm`` are plain numbers.
Unit = Literal["text", "count", "share", "nats", "norm", "ppl", "bytes", "ms"]
Cell: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Control:
    """One parameter of an experiment: label and help are ``lab.<experiment>.control.<key>.label|info``.

    ``int`` lies in ``low..high``; ``choice`` is one of ``options`` and ``choices`` several of them (names:
    ``lab.<experiment>.control.<key>.option.<option>``); ``flag`` is on or off;
    ``quantizer`` is a spec string.
    """

    key: str
    kind: Kind
    default: Any
    low: int = 0
    high: int = 0
    options: tuple[str, ...] = ()

    def check(self, value: Any) -> Any:
        """``value`` as this control takes it; None is the default.

        Raises:
            ConfigError: another kind of value, out of range, or not an option.
        """
        if value is None:
            return self.default
        match self.kind:
            case "int":
                number = not isinstance(value, bool) and isinstance(value, (int, float))
                whole = number and math.isfinite(value) and value == int(value)
                if not whole or not self.low <= value <= self.high:
                    raise ConfigError("whole_range", name=self.key, value=value, low=self.low, high=self.high)
                return int(value)
            case "flag":
                if not isinstance(value, bool):
                    raise ConfigError("unknown_choice", name=self.key, value=value, choices="true, false")
                return value
            case "choice":
                return self._one(value)
            case "quantizer":
                return QuantConfig.parse(str(value)).spec
            case "choices":
                chosen = [self._one(item) for item in value]
                if not chosen:
                    raise ConfigError("choose_one", name=self.key, choices=", ".join(self.options))
                return [option for option in self.options if option in chosen]

    def parse(self, words: str) -> Any:
        """A value as it is written in a terminal: ``64``, ``true``, ``natural``, ``natural,random``.

        Raises:
            ConfigError: it cannot be read, or :meth:`check` refuses it.
        """
        match self.kind:
            case "int":
                return self.check(int(words) if _WHOLE.fullmatch(words.strip()) else words)
            case "flag":
                return self.check({"true": True, "false": False}.get(words.strip().lower(), words))
            case "choice" | "quantizer":
                return self.check(words.strip())
            case "choices":
                return self.check([item.strip() for item in words.split(",") if item.strip()])

    def _one(self, value: Any) -> str:
        if value not in self.options:
            choices = ", ".join(self.options)
            raise ConfigError("unknown_choice", name=self.key, value=value, choices=choices)
        return str(value)


def longest_text(settings: Mapping[str, Any]) -> int:
    """Tokens of the longest text that ``settings`` ask for; 0 where nothing says."""
    return max((int(settings[key]) for key in _TEXT_LENGTHS if key in settings), default=0)


@dataclass(frozen=True, slots=True)
class ExperimentInfo:
    """An experiment as a page or a terminal offers it. Texts: ``lab.<name>.title|question|look_for``.

    ``held_tokens(settings)``: the most tokens that one of its caches holds, before anything runs.
    """

    name: str
    controls: tuple[Control, ...]
    group: Group = "sink"
    opens: bool = False  # its results hold configurations that can be tried on a prompt
    held_tokens: Callable[[Mapping[str, Any]], int] = longest_text

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every control's value: given ones checked, the rest by default.

        Raises:
            ConfigError: an unknown control, or a value that one refuses.
        """
        known = [control.key for control in self.controls]
        for key in given:
            if key not in known:
                raise ConfigError("unknown_control", experiment=self.name, name=key, known=", ".join(known))
        return {control.key: control.check(given.get(control.key)) for control in self.controls}


@dataclass(frozen=True, slots=True)
class LabProgress:
    """``done`` of ``total`` tokens went through the model; ``eta_ms`` is estimated from the pace so far."""

    done: int
    total: int
    eta_ms: float | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column: heading ``lab.column.<key>.label``, explanation ``lab.column.<key>.info``, unit."""

    key: str
    unit: Unit


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers as rows of plain values."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def column(self, key: str) -> list[Cell]:
        """One column's values."""
        place = [column.key for column in self.columns].index(key)
        return [row[place] for row in self.rows]

    def to_csv(self) -> str:
        """Header of keys, then the rows; numbers in full."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([column.key for column in self.columns])
        writer.writerows(self.rows)
        return out.getvalue()


@dataclass(frozen=True, slots=True)
class LabResult:
    """What an experiment found.

    ``finding`` says it in one or two sentences with the measured numbers. The first table is the main one.
    ``arrays`` are what the figure draws; their shapes are told in the experiment's module. ``marks`` are
    plain values beside them (labels of tokens, names of series, positions to mark). ``configurations`` are
    caches that can be tried on a prompt (``CacheConfig.to_dict()``), by the name that the tables give them.
    """

    experiment: str
    settings: dict[str, Any]
    model: ModelFacts
    text_sha256: str  # of the text that was read, "" when it is none (random tokens)
    finding: str
    tables: dict[str, Table]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    marks: dict[str, Any] = field(default_factory=dict)
    elapsed_ms: float = 0.0
    configurations: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; what is not finite becomes None."""
        plain = {
            "experiment": self.experiment,
            "settings": self.settings,
            "finding": self.finding,
            "model": dataclasses.asdict(self.model),
            "text_sha256": self.text_sha256,
            "elapsed_ms": self.elapsed_ms,
            "tables": {
                name: [
                    {c.key: cell for c, cell in zip(table.columns, row, strict=True)} for row in table.rows
                ]
                for name, table in self.tables.items()
            },
            "arrays": {name: _rounded(values) for name, values in self.arrays.items()},
            "marks": self.marks,
            "configurations": self.configurations,
        }
        finite: dict[str, Any] = _finite(plain)
        return finite

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def to_csv(self) -> dict[str, str]:
        """File name -> content, one file a table."""
        return {f"{self.experiment}-{name}.csv": table.to_csv() for name, table in self.tables.items()}


def table(columns: Sequence[tuple[str, Unit]], rows: Sequence[Sequence[Cell]]) -> Table:
    """A table from (key, unit) pairs and rows."""
    return Table(tuple(Column(*pair) for pair in columns), tuple(tuple(row) for row in rows))


def _rounded(values: NDArray[Any]) -> Any:
    """Nested lists with six significant digits: more than a figure or a reader can use."""
    if values.dtype.kind != "f":
        return values.tolist()
    digits = np.frompyfunc(lambda x: float(f"{x:.6g}") if math.isfinite(x) else None, 1, 1)
    return digits(values.astype(np.float64)).tolist()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(child) for child in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
