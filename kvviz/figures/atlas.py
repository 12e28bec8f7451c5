"""All layers and heads at once as thumbnails, and the map of one of them, for canvases.

Knows the record's max-reduced cells; recomputes no attention. Layers run across, heads down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvviz.figures.packing import base64_text, pack_numbers, png_gray
from kvviz.figures.theme import short
from kvviz.record import RunRecord

#: Thumbnails on one page; more are paged by layer.
MOST_THUMBS = 512
THUMB_CELLS = 24
#: Grey levels of a thumbnail's weights: 1 is at most ``10 ** -DECADES``, ``LEVELS`` is 1. 0 is no cell.
LEVELS = 8
DECADES = 4
#: Weights travel as whole numbers of this unit.
WEIGHT_UNIT = 1e-4
LABEL_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Thumbs:
    """``levels`` is ``(L, H, S, S)`` uint8 of layers ``[first, first + L)``: row by query, column by key."""

    first: int
    levels: NDArray[np.uint8]


def has_map(record: RunRecord) -> bool:
    """True when there is a row to show."""
    return record.attention is not None and record.grid is not None and row_count(record) > 0


def row_count(record: RunRecord) -> int:
    """Cell rows that are there: a row's weights sum to 1, so one that is there has a maximum above 0."""
    if record.attention is None or not record.attention.size:
        return 0
    present = np.flatnonzero(record.attention[0, 0].max(axis=1) > 0)
    return int(present[-1]) + 1 if len(present) else 0


def cell_count(record: RunRecord) -> int:
    """Cells across the map: all that may come while a run is live, then those that came."""
    if record.attention is None:
        return 0
    return record.attention.shape[-1] if record.is_live else row_count(record)


def page_of(layer: int, n_layers: int, n_heads: int) -> range:
    """The layers of the thumbnail page that ``layer`` is on."""
    size = max(1, min(n_layers, MOST_THUMBS // n_heads))
    first = layer // size * size
    return range(first, min(n_layers, first + size))


def thumbs(record: RunRecord, layers: range) -> Thumbs:
    """Every head's map of ``layers``, max-pooled; no pixel where no row is yet or a key is in the future."""
    assert record.attention is not None
    cells, rows = cell_count(record), row_count(record)
    size = min(cells, THUMB_CELLS)
    starts = np.arange(size) * cells // size
    # Bits of positive half floats rise with their value, and whole numbers are pooled faster.
    bits = record.attention[layers.start : layers.stop, :, :rows, :cells].view(np.uint16)
    row_starts = starts[starts < rows]
    pooled = np.maximum.reduceat(np.maximum.reduceat(bits, row_starts, axis=2), starts, axis=3)
    levels = np.zeros((*pooled.shape[:2], size, size), dtype=np.uint8)
    levels[:, :, : len(row_starts)] = _level_of_bits()[pooled]
    levels *= np.tri(size, dtype=np.uint8)
    return Thumbs(layers.start, levels)


def _level_of_bits() -> NDArray[np.uint8]:
    """Level of each half float by its bits: even steps of the logarithm."""
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    share = 1 + np.log10(np.clip(np.nan_to_num(values), 10.0**-DECADES, 1)) / DECADES
    return (1 + np.round(share * (LEVELS - 1))).astype(np.uint8)


def sprite(sides: Sequence[Thumbs]) -> str:
    """One PNG of all thumbnails, ``H * S`` by ``L * (S + 1)`` pixels.

    A thumbnail is ``S`` by ``S + 1``: the first configuration lies below the diagonal; the second one, if
    there is one, above it, mirrored at it, so that equal heads make a symmetric picture.
    """
    first = sides[0].levels
    n_layers, n_heads, size, _ = first.shape
    picture = np.zeros((n_layers, n_heads, size, size + 1), dtype=np.uint8)
    picture[..., :size] = first
    for other in sides[1:]:
        picture[..., 1:] += other.levels.swapaxes(2, 3)
    return base64_text(png_gray(picture.transpose(1, 2, 0, 3).reshape(n_heads * size, -1)))


def percent_rows(weights: NDArray[Any], rows: int) -> NDArray[np.int64]:
    """The lower triangle of the first ``rows`` rows, row by row, in whole numbers of ``WEIGHT_UNIT``."""
    below = weights[:rows, :rows][np.tril_indices(rows)].astype(np.float64)
    return np.round(below / WEIGHT_UNIT).astype(np.int64)


def map_side(record: RunRecord, layer: int, head: int, mode: str) -> dict[str, Any]:
    """Weights of one head (``probability``) or their mean over the layer's heads (``mean``), for a canvas."""
    assert record.attention is not None
    rows = row_count(record)
    heads = record.attention[layer].astype(np.float32)
    weights = heads.mean(axis=0) if mode == "mean" else heads[head]
    packed = pack_numbers(percent_rows(weights, rows))
    return side_frame(record) | {"rows": rows, "values": packed, "unit": 100 * WEIGHT_UNIT, "base": 0}


def logit_side(record: RunRecord, logits: NDArray[np.float32]) -> dict[str, Any]:
    """Recomputed logits ``(C, C)`` of one head for a canvas; not finite means that the key was not read."""
    rows = min(row_count(record), len(logits))
    below = logits[:rows, :rows][np.tril_indices(rows)].astype(np.float64)
    return side_frame(record) | {"rows": rows, **pack_logits(below)}


def pack_logits(logits: NDArray[Any]) -> dict[str, Any]:
    """Numbers of any sign and size: ``base + unit * (n - 1)``, and 0 where there is none."""
    there = np.isfinite(logits)
    low, high = (float(logits[there].min()), float(logits[there].max())) if there.any() else (0.0, 0.0)
    unit = max(0.01, (high - low) / 60_000)
    numbers = np.zeros(logits.shape, dtype=np.int64)
    numbers[there] = 1 + np.round((logits[there] - low) / unit).astype(np.int64)
    return {"values": pack_numbers(numbers), "unit": unit, "base": low, "low": low, "high": high}


def labels_of(record: RunRecord, tokens: Sequence[int]) -> list[str]:
    """What tokens are called; empty for one that is not there yet."""
    known = len(record.labels)
    return [
        short(record.labels[token].display.replace("\n", "⏎"), LABEL_LENGTH) if token < known else ""
        for token in tokens
    ]


def side_frame(record: RunRecord) -> dict[str, Any]:
    """What the axes of a map need: cells by position, the first token of each, sinks and prompt length."""
    assert record.grid is not None
    cells = cell_count(record)
    edges = [int(edge) for edge in record.grid.edges[: cells + 1]]
    labels = labels_of(record, edges[:-1])
    cache = record.config.get("cache") or {}
    return {
        "cells": cells,
        "edges": edges,
        "labels": labels,
        "k": record.grid.tokens_per_cell,
        "sinks": int(cache.get("sink_size", 0)),
        "prompt": len(record.prompt_ids),
    }
