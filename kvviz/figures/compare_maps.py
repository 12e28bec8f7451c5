"""Attention of two configurations at the same rows: both maps, their difference, and one row in full.

Only rows whose tokens are the same in both runs are compared, up to the row that chose the first token that
differs; rows, columns and labels are the same in all figures. What a configuration has evicted is told apart
from what weighs little: such a cell has no weight by rule. Recomputes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvviz.config import CacheConfig, Middle
from kvviz.events import Span
from kvviz.figures.attention_map import Boundary, boundaries_of, cell_name, fitted
from kvviz.figures.theme import run_letter
from kvviz.record import RunRecord


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two. ``weights[r]`` are percent, ``(r + 1,)`` float64; ``evicted[r]`` is the range
    ``[start, stop)`` of cells that no row of cell ``r`` may see any more, empty where nothing is evicted."""

    index: int
    weights: tuple[NDArray[np.float64], ...]
    evicted: tuple[tuple[int, int], ...]
    boundaries: tuple[Boundary, ...]
    kind: str = "measured"  # or ``stored``

    @property
    def letter(self) -> str:
        """``A`` for the first configuration of the comparison."""
        return run_letter(self.index)


@dataclass(frozen=True, slots=True)
class PairMaps:
    """Two configurations over the ``rows`` that they share, in cells of the same ``edges``.

    ``parted`` is true when the token after the last shared row differs. ``difference[r]`` is first less
    second, percentage points.
    """

    layer: int
    head: int
    rows: int
    parted: bool
    edges: NDArray[np.int64]
    keys: tuple[str, ...]
    tokens_per_cell: int
    first: Side
    second: Side
    difference: tuple[NDArray[np.float64], ...]

    def cell_of(self, row: int) -> int:
        """The cell of a row, the last one for rows past it."""
        return min(len(self.keys) - 1, int(np.searchsorted(self.edges, max(0, row), side="right")) - 1)


def shared_rows(a: RunRecord, b: RunRecord) -> int:
    """Query rows ``[0, n)`` that both have read and whose tokens are the same in both."""
    ids_a, ids_b = a.token_ids, b.token_ids
    same = next((i for i, (x, y) in enumerate(zip(ids_a, ids_b, strict=False)) if x != y), None)
    least = min(a.rows, b.rows)
    return least if same is None else min(least, same)


def pair_maps(records: Sequence[RunRecord], pair: tuple[int, int], layer: int, head: int) -> PairMaps | None:
    """The maps of two runs; None where there is nothing that both have."""
    a, b = (records[i] for i in pair)
    if a.attention is None or b.attention is None or a.grid is None or b.grid is None:
        return None
    shapes = (a.attention.shape[:2], b.attention.shape[:2])
    if shapes[0] != shapes[1] or not (0 <= layer < shapes[0][0] and 0 <= head < shapes[0][1]):
        return None
    rows = shared_rows(a, b)
    edges = np.intersect1d(a.grid.edges, b.grid.edges)
    edges = edges[edges <= rows]  # whole cells only: none shows rows that the texts do not share
    if len(edges) < 2:
        return None
    values = [_joined(record.grid.edges, record.attention[layer, head], edges) for record in (a, b)]  # type: ignore[union-attr,index]
    (kept, first), (_, second) = (fitted(edges, value) for value in values)
    sides = tuple(
        _side(index, record, kept, value, rows)
        for index, record, value in zip(pair, (a, b), (first, second), strict=True)
    )
    cells = len(kept) - 1
    labels = a.labels
    return PairMaps(
        layer=layer,
        head=head,
        rows=rows,
        parted=rows < min(len(a.token_ids), len(b.token_ids)) and a.token_ids[rows] != b.token_ids[rows],
        edges=kept,
        keys=tuple(cell_name(kept, cell, labels) for cell in range(cells)),
        tokens_per_cell=int(np.diff(kept).max()),
        first=sides[0],
        second=sides[1],
        difference=tuple(np.round(x - y, 2) for x, y in zip(sides[0].weights, sides[1].weights, strict=True)),
    )


def _joined(
    edges: NDArray[np.int64], values: NDArray[np.float16], wanted: NDArray[np.int64]
) -> NDArray[np.float16]:
    """Maxima of a map's cells in the wider cells of ``wanted``, whose edges are among ``edges``."""
    starts = np.searchsorted(edges, wanted)
    part = values[: starts[-1], : starts[-1]]
    rows = np.maximum.reduceat(part, starts[:-1], axis=0)
    joined: NDArray[np.float16] = np.maximum.reduceat(rows, starts[:-1], axis=1)
    return joined


def _side(
    index: int, record: RunRecord, edges: NDArray[np.int64], values: NDArray[np.float16], rows: int
) -> Side:
    percent = np.round(values.astype(np.float64) * 100, 2)
    step = rows - len(record.prompt_ids)  # a step's spans are those after the row that chose its token
    spans: Sequence[Span] = record.spans[step] if 0 <= step < len(record.spans) else ()
    return Side(
        index=index,
        weights=tuple(percent[r, : r + 1] for r in range(len(edges) - 1)),
        evicted=_evicted(CacheConfig.from_dict(record.config["cache"]), edges),
        boundaries=boundaries_of(edges, spans),
        kind=record.kind,
    )


def _evicted(cache: CacheConfig, edges: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Cells wholly in ``[sink_size, i - window_size]`` for the first row ``i`` of each cell."""
    ranges = []
    for row in edges[:-1].tolist():
        if cache.middle is not Middle.EVICT:
            ranges.append((0, 0))
            continue
        start = int(np.searchsorted(edges, cache.sink_size, side="left"))
        stop = int(np.searchsorted(edges, row - cache.window_size + 1, side="right")) - 1
        ranges.append((start, stop) if stop > start else (0, 0))
    return tuple(ranges)


def largest(pair: PairMaps) -> float:
    """The largest difference either way, percentage points."""
    return max((float(np.abs(values).max()) for values in pair.difference if len(values)), default=0.0)


def row_weights(pair: PairMaps, row: int) -> tuple[list[float | None], list[float | None]]:
    """Percent of both, one for each key cell up to the row's; None where the key is evicted."""
    cell = pair.cell_of(row)
    found = []
    for side in (pair.first, pair.second):
        start, stop = side.evicted[cell]
        found.append([None if start <= key < stop else float(x) for key, x in enumerate(side.weights[cell])])
    return found[0], found[1]
