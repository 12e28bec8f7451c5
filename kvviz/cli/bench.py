"""A result as the README's Markdown table. Knows the laboratory's contract; performs nothing."""

from __future__ import annotations

from kvviz.catalogue import text
from kvviz.experiment import LabResult

#: column of the experiment -> digits after the point; text without
COLUMNS: dict[str, int | None] = {
    "scheme_name": None,
    "pair_key": None,
    "pair_value": None,
    "pair_bits": 2,
    "ppl": 4,
    "pair_ppl_change": 2,
    "kl": 5,
    "top1": 4,
    "front": None,
}
_CODE = ("pair_key", "pair_value")
_SHARES = ("pair_ppl_change",)


def markdown(result: LabResult) -> str:
    """The first table, every number with fixed digits, so that the same measurement is the same text."""
    main = next(iter(result.tables.values()))
    heads = [text(f"lab.column.{key}.label") for key in COLUMNS]
    marks = ["---" if digits is None else "---:" for digits in COLUMNS.values()]
    cells = [[_cell(cell, key) for cell in main.column(key)] for key in COLUMNS]
    lines = [heads, marks, *(list(row) for row in zip(*cells, strict=True))]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(cell: object, key: str) -> str:
    digits = COLUMNS[key]
    if digits is None or not isinstance(cell, (int, float)):
        words = "–" if cell is None else str(cell)
        return f"`{words}`" if key in _CODE else words
    return f"{100 * cell:+.{digits}f} %" if key in _SHARES else f"{cell:.{digits}f}"
