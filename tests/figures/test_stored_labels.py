"""What is drawn of a record that was read from a file never says that it was measured now.

Views are taken from the tables of builders that the page itself uses, so that a new view is looked at too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kvviz import lessons
from kvviz.figures.compare_map_drawing import map_figure, row_figure
from kvviz.figures.compare_maps import pair_maps
from kvviz.figures.lab import lab_panels
from kvviz.record import RunRecord
from kvviz.timeline import LINKS
from kvviz.ui import compare_views, lesson_evidence, views
from kvviz.ui.desk import OffloadChoice
from kvviz.ui.offload_views import OFFLOAD
from kvviz.ui.runs import ViewChoice
from tests.builders import FULL, STACK, make_record
from tests.comparisons import make_comparison
from tests.figures.test_timeline_figure import HOST
from tests.test_timeline import SYNCHRONOUS

Show = Callable[[], Any]


def records(*, is_stored: bool) -> list[RunRecord]:
    """Full precision and a stack with a timeline in every step."""
    made = [make_record(40, 6, cache=cache, label=label) for cache, label in ((FULL, "f"), (STACK, "s"))]
    made[1].timelines = [SYNCHRONOUS] * 5 + [HOST]
    return [replace(record, is_stored=is_stored) for record in made]


def shown(*, is_stored: bool) -> Iterator[tuple[str, Any]]:
    """Everything that the page can show of two records and of a comparison, by name."""
    both = records(is_stored=is_stored)
    for name, build in views.BUILDERS.items():
        yield name, build(both, ViewChoice(shown=1))
    for index in range(2):
        yield f"panel {index}", views.panel(both, index)
    for name, build in OFFLOAD.items():
        for step in (0, 5):
            yield f"{name} {step}", build(both, OffloadChoice(1, step, LINKS[0].key))
    pair = pair_maps(both, (0, 1), 0, 0)
    assert pair is not None
    for scale in ("linear", "log"):
        yield "map", map_figure(pair, 0, 1, scale, "")
        yield "row", row_figure(pair, 1, scale, "")
    result = replace(make_comparison(), is_stored=is_stored)
    for told in (compare_views.charts(result), compare_views.tables(result)):
        yield from told.items()


def claims(value: Any) -> bool:
    """True where something says that it was measured."""
    return "measured" in json.dumps(value).replace("nothing was measured", "")


def test_what_was_stored_is_never_called_measured() -> None:
    assert [name for name, value in shown(is_stored=True) if claims(value)] == []


def test_what_was_measured_says_so() -> None:
    """So that the test above looks at claims that are there."""
    live = {name: claims(value) for name, value in shown(is_stored=False)}
    for name in ("memory", "quant_error", "tier_map", "tier_steps", "attention", "strip_a", "strip_b",
                 "panel 0", "offload_timeline 5", "offload_tables 5", "offload_link 0", "map", "row",
                 "cmp_numbers"):  # fmt: skip
        assert live[name], name


@pytest.mark.parametrize("lesson", lessons.LESSONS, ids=lambda lesson: lesson.key)
def test_figures_of_a_lesson_say_where_their_numbers_come_from(lesson: lessons.Lesson) -> None:
    results = lesson_evidence.stored_evidence(lesson).results
    for task, _ in lesson.figures:
        for panel in lab_panels(results[task], is_stored=True):
            assert not claims(panel.payload), panel.key
    live = [panel.payload for task, _ in lesson.figures for panel in lab_panels(results[task])]
    assert any(claims(payload) for payload in live)
