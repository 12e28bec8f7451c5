"""A run as the values of the Attention tab's live views, one builder a view.

Knows records, the desk and words; does not know gradio, nor when a view is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from kvviz.catalogue import keys, text
from kvviz.figures import atlas, atlas_replay, atlas_table
from kvviz.figures.packing import pack_numbers
from kvviz.figures.theme import TIER_ORDER, palette, record_state, tier_name
from kvviz.record import RunRecord
from kvviz.ui.desk import AtlasChoice, Desk
from kvviz.ui.runs import ViewChoice
from kvviz.ui.views import LETTERS, strip

Records = Sequence[RunRecord]
AtlasBuilder = Callable[[Records, Desk, str], dict[str, Any]]


def words(group: str) -> dict[str, str]:
    """All sentences of one view, by the last part of their keys."""
    start = f"atlas.{group}."
    return {key.removeprefix(start): text(key) for key in keys() if key.startswith(start)}


def empty_sentence(records: Records, choice: AtlasChoice) -> str:
    """Why there is nothing to see, and what to do."""
    shown = [records[side] for side in choice.sides]
    if all(record.status == "empty" for record in shown):
        return text("atlas.empty")
    if any(record.attention is None and record.is_stored for record in shown):
        return text("atlas.stored_maps")
    if any(record.attention is None and record.tier_mass for record in shown):
        return text("atlas.no_maps")
    return text(record_state(shown))


def thumbs(records: Records, desk: Desk, run_id: str) -> dict[str, Any]:
    """All heads of the shown configurations: one sprite."""
    choice = desk.choice
    shown = [records[side] for side in choice.sides]
    value: dict[str, Any] = {
        "seq": choice.seq,
        "name": text("atlas.thumbs_name"),
        "words": words("thumbs"),
        "empty": "",
        "sentences": sentences(records, choice),
        "pick": {"layer": choice.layer, "head": choice.head},
    }
    if not all(atlas.has_map(record) for record in shown):
        return value | {"empty": empty_sentence(records, choice)}
    attention = shown[0].attention
    assert attention is not None
    n_layers, n_heads = attention.shape[:2]
    page = atlas.page_of(min(choice.layer, n_layers - 1), n_layers, n_heads)
    pictures = [atlas.thumbs(record, page) for record in shown]
    return value | {
        "first": page.start,
        "layers": len(page),
        "page_layers": len(atlas.page_of(0, n_layers, n_heads)),
        "n_layers": n_layers,
        "heads": n_heads,
        "size": pictures[0].levels.shape[-1],
        "levels": atlas.LEVELS,
        "letters": [LETTERS[side] for side in choice.sides],
        "sprite": atlas.sprite(pictures),
        "palette": list(palette().sequential),
        "masses": [_masses(record, choice) for record in shown],
    }


def sentences(records: Records, choice: AtlasChoice) -> list[str]:
    """What the first token is to the heads, once a configuration."""
    found = []
    for side in choice.sides:
        summary = atlas_table.summary_at(records[side], choice.step)
        if summary is not None:
            sentence = atlas_table.sink_sentence(summary)
            found.append(text("atlas.side_sentence", letter=LETTERS[side], sentence=sentence))
    return found


def _masses(record: RunRecord, choice: AtlasChoice) -> dict[str, list[int]]:
    """Mean share on the first token and on the sinks, in ``SHARE_UNIT``, layer by layer."""
    summary = atlas_table.summary_at(record, choice.step)
    columns = atlas_table.table_columns(summary) if summary is not None else []
    return {column["key"]: column["numbers"] for column in columns if column["key"] in ("first", "sink")}


def attention_map(records: Records, desk: Desk, run_id: str) -> dict[str, Any]:
    """The large maps of the locked head."""
    choice = desk.choice
    value: dict[str, Any] = {
        "seq": choice.seq,
        "name": text("atlas.map_name"),
        "words": words("map"),
        "layer": choice.layer,
        "head": choice.head,
        "mode": choice.mode,
        "palette": list(palette().sequential),
        "decades": atlas.DECADES,
        "tiers": tier_styles(),
        "sides": [],
        "missing": False,
        "tile": None,
        "busy": desk.wish is not None,
    }
    if not all(atlas.has_map(records[side]) for side in choice.sides):
        return value | {"empty": empty_sentence(records, choice)}
    value["tile"] = _tile(records, desk, run_id)
    for side in choice.sides:
        drawn = _side(records[side], desk, run_id, side)
        if drawn is None:
            return value | {"missing": True, "sides": [], "empty": _missing(records[side], choice)}
        value["sides"].append(drawn | {"letter": LETTERS[side], "label": records[side].label})
    return value


def _missing(record: RunRecord, choice: AtlasChoice) -> str:
    return text("atlas.logits_live" if record.is_live else "atlas.logits_missing", layer=choice.layer)


def _side(record: RunRecord, desk: Desk, run_id: str, side: int) -> dict[str, Any] | None:
    choice = desk.choice
    if choice.mode != "logits":
        return atlas.map_side(record, choice.layer, choice.head, choice.mode)
    logits = desk.logits_of(run_id, choice.layer, side)
    return None if logits is None else atlas.logit_side(record, logits.values[choice.head])


def _tile(records: Records, desk: Desk, run_id: str) -> dict[str, Any] | None:
    """The exact tile, as a map whose every cell is one token."""
    choice = desk.choice
    tile = desk.tile_of(run_id, choice.layer)
    if tile is None or desk.tiled is None:
        return None
    side = desk.tiled.sides[0]
    record = records[side]
    n_rows, n_columns = tile.probability.shape[1:]
    value = {
        "letter": LETTERS[side],
        "first_row": tile.first_row,
        "first_column": tile.first_column,
        "rows": n_rows,
        "columns": n_columns,
        "row_labels": atlas.labels_of(record, range(tile.first_row, tile.first_row + n_rows)),
        "column_labels": atlas.labels_of(record, range(tile.first_column, tile.first_column + n_columns)),
    }
    if choice.mode == "logits":
        return value | atlas.pack_logits(np.asarray(tile.logits[choice.head], dtype=np.float64))
    weights = tile.probability.mean(0) if choice.mode == "mean" else tile.probability[choice.head]
    numbers = np.round(np.nan_to_num(weights).astype(np.float64) / atlas.WEIGHT_UNIT).astype(np.int64)
    return value | {"values": pack_numbers(numbers), "unit": 100 * atlas.WEIGHT_UNIT, "base": 0}


def tier_styles() -> list[dict[str, Any]]:
    """How each tier looks, in the order of ``TIER_ORDER``."""
    styles = palette().tiers
    return [
        {
            "name": tier_name(tier),
            "color": styles[tier].color,
            "glyph": styles[tier].glyph,
            "filled": styles[tier].filled,
        }
        for tier in TIER_ORDER
    ]


def table(records: Records, desk: Desk, run_id: str) -> dict[str, Any]:
    """One row a head."""
    choice = desk.choice
    sides = []
    for side in choice.sides:
        summary = atlas_table.summary_at(records[side], choice.step)
        if summary is not None:
            columns = atlas_table.table_columns(summary)
            rows = text("atlas.table_rows", letter=LETTERS[side], rows=f"{summary.rows:,}")
            sides.append({"letter": LETTERS[side], "rows": rows, "columns": columns})
    model = records[choice.sides[0]].model
    return {
        "seq": choice.seq,
        "name": text("atlas.table_name"),
        "words": words("table"),
        "places": [
            {"name": text(f"atlas.column.{key}.name"), "meaning": text(f"atlas.column.{key}.meaning")}
            for key in ("layer", "head")
        ],
        "heads": model.n_heads if model else 0,
        "pick": {"layer": choice.layer, "head": choice.head},
        "sides": sides,
        "empty": "" if sides else empty_sentence(records, choice),
    }


def replay(records: Records, desk: Desk, run_id: str) -> dict[str, Any]:
    """The step that is shown, where the keys are then, and what the cache weighs then."""
    choice = desk.choice
    steps = max(atlas_replay.step_count(record) for record in records)
    at = [atlas_replay.clamp(record, choice.step) for record in records]
    return {
        "seq": choice.seq,
        "run": run_id,
        "words": words("replay"),
        "steps": steps,
        "step": choice.step,
        "live": any(record.is_live for record in records),
        "at": at,
        "spans": [atlas_replay.spans_at(record, step) for record, step in zip(records, at, strict=True)],
        "memory": [atlas_replay.memory_at(record, step) for record, step in zip(records, at, strict=True)],
        "tiers": tier_styles(),
        "letters": list(LETTERS),
        "labels": [record.label for record in records],
        "shown": choice.shown,
        "tokens": [_chosen(record, step) for record, step in zip(records, at, strict=True)],
    }


def _chosen(record: RunRecord, step: int) -> str:
    """The token that was chosen at a step, as shown."""
    place = len(record.prompt_ids) + step
    return record.labels[place].display if step >= 0 and place < len(record.labels) else ""


def atlas_strip(records: Records, desk: Desk, index: int) -> dict[str, Any]:
    """One configuration's token strip at the shown step."""
    return strip(records, index, ViewChoice(step=desk.choice.step))


#: The views in the order in which the tab declares them.
ATLAS: Mapping[str, AtlasBuilder] = MappingProxyType(
    {
        "atlas_replay": replay,
        "atlas_thumbs": thumbs,
        "atlas_map": attention_map,
        "atlas_table": table,
        "atlas_strip_a": lambda records, desk, run_id: atlas_strip(records, desk, 0),
        "atlas_strip_b": lambda records, desk, run_id: atlas_strip(records, desk, 1),
    }
)

#: Which views a change of one choice redraws; the replay view goes with every answer and carries its number.
AFFECTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "shown": ("atlas_thumbs", "atlas_map", "atlas_table"),
        "mode": ("atlas_map",),
        "layer": ("atlas_map",),
        "head": ("atlas_map",),
        "step": ("atlas_table", "atlas_strip_a", "atlas_strip_b"),
        "seq": ("atlas_replay",),
    }
)


def affected(before: AtlasChoice, after: AtlasChoice) -> list[str]:
    """The views that look different after a choice."""
    changed = [name for name in AFFECTED if getattr(before, name) != getattr(after, name)]
    return [view for view in ATLAS if any(view in AFFECTED[name] for name in changed)]
