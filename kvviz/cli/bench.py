"""A result as the README's Markdown table. Knows the laboratory's contract; performs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from kvviz.catalogue import text
from kvviz.experiment import Cell, LabResult
from kvviz.units import format_bytes

Form = Callable[[Cell], str]


def _words(cell: Cell) -> str:
    return str(cell)


def _code(cell: Cell) -> str:
    return f"`{cell}`"


def _number(digits: int, cell: Cell) -> str:
    return f"{cell:.{digits}f}" if isinstance(cell, (int, float)) else str(cell)


def _change(cell: Cell) -> str:
    return f"{100 * cell:+.2f} %" if isinstance(cell, (int, float)) else str(cell)


def _bytes(cell: Cell) -> str:
    return format_bytes(cell) if isinstance(cell, (int, float)) else str(cell)


#: experiment -> column -> how its cells are written; fixed digits: the same measurement is the same text
FORMS: Mapping[str, Mapping[str, Form]] = MappingProxyType(
    {
        "quality": {
            "scheme_name": _words,
            "pair_key": _code,
            "pair_value": _code,
            "pair_bits": partial(_number, 2),
            "ppl": partial(_number, 4),
            "pair_ppl_change": _change,
            "kl": partial(_number, 5),
            "top1": partial(_number, 4),
            "front": _words,
        },
        "speed": {
            "context": partial(_number, 0),
            "speed_cache": _words,
            "decode_ms": partial(_number, 1),
            "decode_low_ms": partial(_number, 1),
            "decode_high_ms": partial(_number, 1),
            "decode_to_library": partial(_number, 2),
            "decode_to_full": partial(_number, 2),
            "prefill_ms": partial(_number, 0),
            "prefill_to_library": partial(_number, 2),
            "at_once_ms": partial(_number, 0),
            "prefill_to_at_once": partial(_number, 2),
            "held_bytes": _bytes,
            "transient_bytes": _bytes,
        },
    }
)


def markdown(result: LabResult) -> str:
    """The first table."""
    main, forms = next(iter(result.tables.values())), FORMS[result.experiment]
    units = {column.key: column.unit for column in main.columns}
    heads = [text(f"lab.column.{key}.label") for key in forms]
    marks = ["---" if units[key] == "text" else "---:" for key in forms]
    cells = [
        ["–" if cell is None else form(cell) for cell in main.column(key)] for key, form in forms.items()
    ]
    lines = [heads, marks, *(list(row) for row in zip(*cells, strict=True))]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
