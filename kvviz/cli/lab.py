"""The laboratory in a terminal: experiments listed, one performed, its tables printed or written.

Knows the laboratory's contract; performs nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvviz.catalogue import text
from kvviz.cli.output import Terminal, table
from kvviz.errors import ConfigError
from kvviz.experiment import Cell, Control, ExperimentInfo, LabProgress, LabResult, Table
from kvviz.units import format_count, format_ms, format_number

_TOLD_EVERY = 0.1  # of the work


def listing(experiments: Sequence[ExperimentInfo]) -> list[dict[str, Any]]:
    """Names, questions and settings as plain JSON values."""
    return [
        {
            "name": info.name,
            "question": text(f"lab.{info.name}.question"),
            "settings": {
                control.key: {"default": control.default, "takes": _takes(control)}
                for control in info.controls
            },
        }
        for info in experiments
    ]


def listing_words(experiments: Sequence[ExperimentInfo]) -> str:
    """The same for people."""
    parts = []
    for info in experiments:
        rows = [(f"  {c.key}={_written(c.default)}", _takes(c)) for c in info.controls]
        parts.append(f"{info.name}: {text(f'lab.{info.name}.question')}\n{table(rows)}")
    return "\n\n".join(parts)


def _takes(control: Control) -> str:
    if control.kind == "int":
        return f"{control.low}..{control.high}"
    if control.kind == "flag":
        return "true, false"
    if control.kind == "quantizer":
        return text("cli.quantizer")
    return (" | " if control.kind == "choice" else ", ").join(control.options)


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, (list, tuple)) else str(value)


def read_settings(info: ExperimentInfo, given: Sequence[str]) -> dict[str, Any]:
    """Settings out of ``key=value`` words.

    Raises:
        ConfigError: no ``=``, an unknown key, or a value that its control refuses.
    """
    controls = {control.key: control for control in info.controls}
    settings = {}
    for words in given:
        key, mark, value = words.partition("=")
        if not mark:
            first = info.controls[0]
            raise ConfigError(
                "experiment_setting", given=words, example=f"{first.key}={_written(first.default)}"
            )
        if key not in controls:
            raise ConfigError("unknown_field", name=key, known=", ".join(controls))
        settings[key] = controls[key].parse(value)
    return settings


def follow(events: Iterator[LabProgress | LabResult], terminal: Terminal) -> LabResult:
    """Tell progress now and then; return the result."""
    told = 0.0
    for event in events:
        if isinstance(event, LabResult):
            return event
        share = event.done / max(1, event.total)
        if event.eta_ms is not None and share - told >= _TOLD_EVERY:
            told = share
            terminal.tell(
                text(
                    "cli.lab_progress",
                    done=format_count(event.done),
                    total=format_count(event.total),
                    left=format_ms(event.eta_ms),
                )
            )
    raise RuntimeError("an experiment ended without a result")


def result_words(result: LabResult) -> str:
    """The finding and every table, for people."""
    parts = [result.finding]
    for name, numbers in result.tables.items():
        parts.append(f"{text(f'lab.table.{name}')}\n{_grid(numbers)}")
    facts = result.model
    parts.append(f"{facts.name} · {facts.device} {facts.dtype} · {facts.weights_hash}")
    return "\n\n".join(parts)


def _grid(numbers: Table) -> str:
    heads = [text(f"lab.column.{column.key}.label") for column in numbers.columns]
    rows = [[_cell(cell) for cell in row] for row in numbers.rows]
    widths = [max(len(line[i]) for line in [heads, *rows]) for i in range(len(heads))]
    left = [column.unit == "text" for column in numbers.columns]
    lines = [
        "  ".join(
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(line, widths, left, strict=True)
        ).rstrip()
        for line in [heads, *rows]
    ]
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    if cell is None:
        return "–"
    return format_number(cell) if isinstance(cell, float) else str(cell)


def write_csv(result: LabResult, folder: str) -> list[Path]:
    """One file a table.

    Raises:
        ConfigError: the folder cannot be made or written to.
    """
    place = Path(folder)
    written = []
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, content in result.to_csv().items():
            written.append(place / name)
            written[-1].write_text(content, encoding="utf-8")
    except OSError as error:
        raise ConfigError("folder_denied", path=folder, reason=error.strerror) from error
    return written
