"""Looking again, exactly: attention of one layer recomputed from a record's token ids.

A replay feeds the recorded tokens through the record's own cache settings, in the record's own chunks, up to
the layer that is asked for and no further. Knows no page; leaves nothing behind, and builds no array of the
size tokens x tokens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import torch

from kvviz.attention import Attention
from kvviz.cache import CacheSession
from kvviz.cache.plan import StepPlan
from kvviz.config import RunConfig
from kvviz.engine.grid import CellMap
from kvviz.errors import ConfigError, KvvizError
from kvviz.events import ExactTile, LogitMap
from kvviz.models import LanguageModel
from kvviz.record import RunRecord

MAX_TILE_TOKENS = 256
NEG_INF = float("-inf")

#: tokens read so far, tokens in all
Progress = Callable[[int, int], None]
#: what the rows of a step read in the layer that is asked for
Take = Callable[[Attention, StepPlan], None]


def exact_tile(
    model: LanguageModel,
    record: RunRecord,
    *,
    layer: int,
    rows: tuple[int, int],
    columns: tuple[int, int],
    stop: threading.Event | None = None,
    progress: Progress | None = None,
) -> ExactTile:
    """Probabilities and logits of query rows ``[start, stop)`` against key columns ``[start, stop)``.

    Ranges may reach past the record's last row; the tile ends there.

    Raises:
        ConfigError: no such layer, a tile that holds nothing or is larger than :data:`MAX_TILE_TOKENS`.
        KvvizError: nothing was recorded, the model has other weights, or ``stop`` was set.
    """
    _check(model, record, layer)
    first_row, first_column = rows[0], columns[0]
    last_row, last_column = min(rows[1], record.rows), min(columns[1], record.rows)
    if not (0 <= first_row < last_row and 0 <= first_column < last_column):
        raise ConfigError(
            "replay_outside", first_row=rows[0], last_row=rows[1], first_column=columns[0],
            last_column=columns[1], rows=record.rows,
        )  # fmt: skip
    shape = (model.facts.n_heads, last_row - first_row, last_column - first_column)
    if max(shape[1:]) > MAX_TILE_TOKENS:
        raise ConfigError("replay_size", limit=MAX_TILE_TOKENS, rows=shape[1], columns=shape[2])
    probability, logits = torch.zeros(shape), torch.full(shape, NEG_INF)

    def take(result: Attention, step: StepPlan) -> None:
        low, high = max(step.first, first_row), min(step.stop, last_row)
        read, kept = slice(low - step.first, high - step.first), slice(low - first_row, high - first_row)
        for tile in result.tiles():
            start, end = max(tile.start, first_column), min(tile.start + tile.scores.shape[-1], last_column)
            if end <= start:
                continue
            keys = slice(start - tile.start, end - tile.start)
            share = tile.weights[0, :, read, keys] * tile.factor[0, :, read]
            place = (slice(None), kept, slice(start - first_column, end - first_column))
            # parts may overlap, but no row sees a position in two of them
            probability[place] += share.float().cpu()
            logits[place] = torch.maximum(logits[place], tile.scores[0, :, read, keys].float().cpu())

    _replay(model, record, layer, (first_row, last_row), take, stop, progress)
    return ExactTile(layer, first_row, first_column, probability.numpy(), logits.numpy())


def logit_map(
    model: LanguageModel,
    record: RunRecord,
    *,
    layer: int,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
) -> LogitMap:
    """The largest logit of every cell of the record's grid, in one layer.

    Raises:
        ConfigError: no such layer.
        KvvizError: nothing was recorded, the model has other weights, or ``stop`` was set.
    """
    _check(model, record, layer)
    assert record.grid is not None
    cells = CellMap.of_grid(record.grid)
    values = torch.full((model.facts.n_heads, cells.cells, cells.cells), NEG_INF)

    def take(result: Attention, step: StepPlan) -> None:
        heads, rows = result.lse.shape[1:]
        picture = result.lse.new_full((heads, rows, cells.cells), NEG_INF)
        for tile in result.tiles():
            cells.fold(tile.scores[0], tile.start, picture)
        cells.fold(picture.float().cpu(), step.first, values, axis=-2)

    _replay(model, record, layer, (0, record.rows), take, stop, progress)
    return LogitMap(layer, values.numpy())


def _check(model: LanguageModel, record: RunRecord, layer: int) -> None:
    if record.model is None or record.grid is None or record.rows == 0:
        raise KvvizError("replay_empty")
    if record.model.weights_hash != model.facts.weights_hash:
        raise KvvizError(
            "replay_weights", recorded=record.model.weights_hash, loaded=model.facts.weights_hash,
            model=record.model.name,
        )  # fmt: skip
    if not 0 <= layer < model.facts.n_layers:
        raise ConfigError("replay_layer", layer=layer, n_layers=model.facts.n_layers)


def _replay(
    model: LanguageModel,
    record: RunRecord,
    layer: int,
    rows: tuple[int, int],
    take: Take,
    stop: threading.Event | None,
    progress: Progress | None,
) -> None:
    """Read the record's tokens again up to row ``rows[1]``; ``take`` sees the steps that hold wanted rows."""
    config = RunConfig.from_dict(record.config)
    session = model.new_session(config.cache)
    chunks = list(_chunks(record, rows[1], config.chunk_size))
    total = chunks[-1][1]

    def watch(at: int, result: Attention, step: StepPlan) -> None:
        if at == layer:
            take(result, step)

    try:
        session.begin_prompt()
        for start, end in chunks:
            if stop is not None and stop.is_set():
                raise KvvizError("replay_stopped", tokens=start)
            if start == len(record.prompt_ids):
                session.end_prompt()
            session.observer = watch if end > rows[0] else None
            model.read(record.token_ids[start:end], session, last_layer=layer)
            if progress is not None:
                progress(end, total)
    finally:
        _free(session)


def _chunks(record: RunRecord, stop: int, chunk_size: int) -> Iterator[tuple[int, int]]:
    """The record's own chunks of the prompt, whole ones so that they round as the run did; then generated
    tokens, which were read one by one, together: feeding does not matter."""
    prompt = len(record.prompt_ids)
    for start in range(0, min(prompt, stop), chunk_size):
        yield start, min(start + chunk_size, prompt)
    for start in range(prompt, stop, chunk_size):
        yield start, min(start + chunk_size, stop)


def _free(session: CacheSession) -> None:
    session.observer = None
    session.reset()
