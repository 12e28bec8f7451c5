"""A comparison as the values of the Compare tab's live views.

Knows records, results, figures and words; does not know gradio, nor when a view is sent. Everything but the
maps can be built from a result alone, so that a comparison that was loaded is shown by the same code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvviz.catalogue import text
from kvviz.comparison import Comparison
from kvviz.comparison_request import MAX_CONFIGURATIONS
from kvviz.comparison_words import (
    cache_words,
    cell_words,
    measure_info,
    measure_label,
    verdict,
    verdict_line,
)
from kvviz.config import CacheConfig
from kvviz.figures import compare as figures
from kvviz.figures.attention_map import Scale
from kvviz.figures.compare_map_drawing import difference_figure, map_figure, row_figure
from kvviz.figures.compare_maps import PairMaps, largest, pair_maps, shared_rows
from kvviz.figures.metrics import metrics_data, status_sentence
from kvviz.figures.texts import text_segments
from kvviz.figures.theme import run_letter
from kvviz.record import RunRecord, first_divergence
from kvviz.ui.comparison_runs import ComparisonRun
from kvviz.ui.views import no_text, notice, run_notice, same_key
from kvviz.units import format_count, format_ms, format_number

Value = dict[str, Any]
PANELS = tuple(f"cmp_panel_{i}" for i in range(MAX_CONFIGURATIONS))
CHARTS = ("cmp_quality", "cmp_memory", "cmp_speed", "cmp_nll")
TABLES = ("cmp_numbers", "cmp_worst")
MAPS = ("cmp_map_first", "cmp_map_second", "cmp_difference", "cmp_row")
VIEWS = (*PANELS, *CHARTS, *TABLES, *MAPS)
#: What a view of nothing is.
VOID_PANEL: Value = {"void": True}


@dataclass(frozen=True, slots=True)
class MapChoice:
    """Which two configurations, which head and which row are looked at; ``row`` None is the last that they
    share, the one that chose the first token that differs."""

    pair: tuple[int, int] = (0, 1)
    layer: int = 0
    head: int = 0
    row: int | None = None
    scale: Scale = "log"


# -- texts -------------------------------------------------------------------------------------------


def panels(records: Sequence[RunRecord], result: Comparison | None, *, has_maps: bool) -> dict[str, Value]:
    """Text, numbers and verdict of each configuration; the rest are void."""
    shown: dict[str, Value] = dict.fromkeys(PANELS, VOID_PANEL)
    for index, name in zip(range(len(records)), PANELS, strict=False):
        shown[name] = _panel(records, index, result, has_maps=has_maps)
    return shown


def _panel(records: Sequence[RunRecord], index: int, result: Comparison | None, *, has_maps: bool) -> Value:
    record = records[index]
    divergence = first_divergence(records[0], record) if index else None
    mark = None if divergence is None else text("ui.panel.mark", token=divergence)
    linked = mark is not None and has_maps and divergence < len(record.generated_ids)  # type: ignore[operator]
    return {
        "letter": run_letter(index),
        "title": record.label,
        "state": record.status,
        "status": status_sentence(record),
        "text_name": text("ui.panel.text_name", letter=run_letter(index)),
        "segments": text_segments(record, divergence),
        "mark_title": mark,
        "mark_action": text("compare.panel.to_map", token=divergence) if linked else None,
        "empty": no_text(record, "compare.panel.empty"),
        "note": _parting(records, index, divergence) if index and record.generated_ids else "",
        "verdict": verdict_line(verdict(result, index)) if result is not None else "",
        "settings": _settings(record),
        "metrics": [metric._asdict() for metric in metrics_data(record)],
    }  # fmt: skip


def _settings(record: RunRecord) -> str:
    plain = record.config.get("cache")
    return cache_words(CacheConfig.from_dict(plain)) if plain else ""


def _parting(records: Sequence[RunRecord], index: int, divergence: int | None) -> str:
    if divergence is None:
        return text(f"compare.panel.{same_key((records[0], records[index]))}")
    return text(
        "compare.panel.parted",
        token=divergence,
        letter=run_letter(index),
        a=_token(records[0], divergence),
        b=_token(records[index], divergence),
    )


def _token(record: RunRecord, generated: int) -> str:
    place = len(record.prompt_ids) + generated
    return record.labels[place].display if place < len(record.labels) else text("ui.panel.ended")


# -- charts and tables -------------------------------------------------------------------------------


def charts(result: Comparison | None) -> dict[str, Value]:
    """The figures that a result makes; void without one. A name says the numbers, for screen readers."""
    if result is None:
        return {name: {"name": "", "figure": None} for name in CHARTS}
    drawn = {
        "cmp_quality": (figures.quality_figure(result), figures.spoken(result, figures.QUALITY)),
        "cmp_memory": (
            figures.bytes_figure(result),
            figures.spoken(result, ("kv_bytes", "full_16bit_bytes")),
        ),
        "cmp_speed": (figures.speed_figure(result), figures.spoken(result, figures.SPEED)),
        "cmp_nll": (figures.nll_figure(result), figures.spoken(result, ("ppl_change",))),
    }
    return {
        name: {"name": f"{text(f'compare.title.{name}')}. {words}", "figure": figure}
        for name, (figure, words) in drawn.items()
    }


def tables(result: Comparison | None) -> dict[str, Value]:
    """All numbers, one configuration a row; and each configuration's worst tokens."""
    if result is None:
        return {name: {"tables": []} for name in TABLES}
    worst = [_worst(result, i) for i in range(len(result.entries))]
    return {
        "cmp_numbers": {"tables": [_numbers(result)]},
        "cmp_worst": {"tables": [table for table in worst if table is not None]},
    }


def _numbers(result: Comparison) -> Value:
    dtype = result.model.dtype
    first, last = (
        {"label": text(f"compare.column.{key}.label"), "info": text(f"compare.column.{key}.info"),
         "number": False}
        for key in ("configuration", "settings")
    )  # fmt: skip
    rows = result.rows()
    numbers: list[Value] = [
        {
            "label": measure_label(row.measure, dtype),
            "info": f"{text(f'figures.kind.{row.kind}')}: {measure_info(row.measure, dtype)}",
            "number": True,
        }
        for row in rows
    ]
    names = [
        [f"{run_letter(i)}: {entry.label}", cache_words(CacheConfig.from_dict(entry.cache))]
        for i, entry in enumerate(result.entries)
    ]
    cells = [
        [name, *(cell_words(row.values[i], row.measure.unit) for row in rows), cache]
        for i, (name, cache) in enumerate(names)
    ]
    sort = [[name, *(row.values[i] for row in rows), cache] for i, (name, cache) in enumerate(names)]
    return {
        "title": text("compare.title.numbers"),
        "columns": [first, *numbers, last],  # the settings are long: the numbers are seen without scrolling
        "cells": cells,
        "sort": sort,
        "open": True,
    }


_WORST = ("position", "before", "token", "nll_full", "nll", "lost", "kl", "choice_full", "choice")
_WORST_NUMBERS = ("position", "nll_full", "nll", "lost", "kl")


def _worst(result: Comparison, index: int) -> Value | None:
    entry = result.entries[index]
    if entry.score is None or not entry.score.worst:
        return None
    columns = [
        {
            "label": text(f"compare.column.{key}.label"),
            "info": text(f"compare.column.{key}.info"),
            "number": key in _WORST_NUMBERS,
        }
        for key in _WORST
    ]
    plain = [
        [token.position, token.before.replace("\n", "⏎"), token.token, token.nll_full, token.nll,
         token.nll - token.nll_full, token.kl, token.choice_full, token.choice]
        for token in entry.score.worst
    ]  # fmt: skip
    cells = [[format_number(x) if isinstance(x, float) else str(x) for x in row] for row in plain]
    title = text("compare.title.worst_of", letter=run_letter(index), label=entry.label)
    return {"title": title, "columns": columns, "cells": cells, "sort": plain, "open": index <= 1}


# -- maps --------------------------------------------------------------------------------------------


def maps(records: Sequence[RunRecord], choice: MapChoice) -> dict[str, Value]:
    """Both maps, their difference and the row, of two of the configurations; or why there are none."""
    pair, reason = _pair(records, choice)
    row = last_row(pair, choice)
    words = map_words(pair, row) if pair else reason
    built = {
        "cmp_map_first": map_figure(pair, 0, row, choice.scale, reason),
        "cmp_map_second": map_figure(pair, 1, row, choice.scale, reason),
        "cmp_difference": difference_figure(pair, row, choice.scale, reason),
        "cmp_row": row_figure(pair, row, choice.scale, reason),
    }
    headings = _headings(records, choice)
    return {
        name: {"name": f"{headings[name]}. {words}", "heading": headings[name], "figure": figure}
        for name, figure in built.items()
    }


def _headings(records: Sequence[RunRecord], choice: MapChoice) -> Mapping[str, str]:
    first, second = (run_letter(i) for i in choice.pair)
    names = [records[i].label if i < len(records) else "" for i in choice.pair]
    return {
        "cmp_map_first": text("compare.map.heading", letter=first, label=names[0]),
        "cmp_map_second": text("compare.map.heading", letter=second, label=names[1]),
        "cmp_difference": text("compare.map.heading_difference", first=first, second=second),
        "cmp_row": text("compare.map.heading_row", first=first, second=second),
    }


def _pair(records: Sequence[RunRecord], choice: MapChoice) -> tuple[PairMaps | None, str]:
    if not records:
        return None, text("compare.map.before")
    if max(choice.pair) >= len(records):
        return None, text("compare.map.missing", letter=run_letter(max(choice.pair)))
    if any(records[i].is_stored for i in choice.pair):
        return None, text("compare.map.stored")
    pair = pair_maps(records, choice.pair, choice.layer, choice.head)
    return pair, "" if pair else text("compare.map.none")


def last_row(pair: PairMaps | None, choice: MapChoice) -> int:
    """The row that is looked at: the chosen one, within those that both share."""
    if pair is None:
        return 0
    return pair.rows - 1 if choice.row is None else max(0, min(pair.rows - 1, choice.row))


def map_words(pair: PairMaps, row: int) -> str:
    """What is looked at, in a sentence."""
    first, second = pair.first.letter, pair.second.letter
    values = {
        "row": pair.keys[pair.cell_of(row)].replace("␠", "␣"), "layer": pair.layer, "head": pair.head,
        "rows": pair.rows, "largest": f"{largest(pair):.2f}", "first": first, "second": second,
    }  # fmt: skip
    key = "parted" if pair.parted and row == pair.rows - 1 else "row"
    sentences = [text(f"compare.map.words_{key}", **values)]
    for side in (pair.first, pair.second):
        start, stop = side.evicted[pair.cell_of(row)]
        if stop > start:
            tokens = int(pair.edges[stop] - pair.edges[start])
            sentences.append(
                text("compare.map.words_evicted", letter=side.letter, tokens=format_count(tokens))
            )
    return " ".join(sentences)  # fmt: skip


def map_notice(records: Sequence[RunRecord], choice: MapChoice) -> Value:
    """The line above the maps."""
    pair, reason = _pair(records, choice)
    return notice(map_words(pair, last_row(pair, choice)) if pair else reason)


def parting_row(records: Sequence[RunRecord], index: int) -> int:
    """The last row that configuration ``index`` shares with the first: it chose the first token that
    differs."""
    return max(0, shared_rows(records[0], records[index]) - 1)


# -- the line under the button -----------------------------------------------------------------------


def compare_notice(run: ComparisonRun, loading: Value, *, final: bool) -> Value:
    """As the Run tab's, and how far the scoring is."""
    is_plain = run.error or final or run.stop.is_set() or run.progress is None
    if is_plain:
        told = run_notice(run, loading, final=final)
        if final and run.result is not None and told["kind"] == "info":
            took = text("ui.lab.took", time=format_ms(run.result.elapsed_ms))
            return notice(f"{took} {told['text']}".rstrip())
        return told
    assert run.progress is not None
    done, total = run.progress.done, run.progress.total
    words = text("compare.scoring", done=format_count(done), total=format_count(total))
    return notice(words, "busy", done / max(1, total))
