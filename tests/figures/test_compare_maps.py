"""Two maps and their difference: same rows and columns, only tokens that are shared, eviction told apart."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.config import CacheConfig, Middle
from kvviz.figures.compare_map_drawing import (
    _rounded_up,
    difference_figure,
    draw_difference,
    draw_row,
    map_figure,
    row_figure,
)
from kvviz.figures.compare_maps import largest, pair_maps, row_weights, shared_rows
from kvviz.figures.theme import diverging_scale, palette
from tests.builders import EVICT, FULL, STACK, make_record

SAME = [50, 51, 52, 53, 54, 55]
PARTS = [50, 51, 60, 61, 62, 63]  # from SAME at generated token 2


def records(cache=EVICT, ids=PARTS, **how):
    a = make_record(8, 6, cache=FULL, label="full", generated_ids=SAME, **how)
    return [a, make_record(8, 6, cache=cache, label="other", generated_ids=ids, **how)]


def test_rows_end_where_the_texts_part():
    a, b = records()
    assert shared_rows(a, b) == 8 + 2  # rows 0 to 9; row 9 is token 51, which chose the token that differs
    pair = pair_maps([a, b], (0, 1), 1, 2)
    assert pair.rows == 10
    assert pair.parted
    assert len(pair.keys) == len(pair.difference) == len(pair.first.weights) == 10
    assert pair.cell_of(9) == 9


def test_texts_that_do_not_part_share_all_rows():
    a, b = records(ids=SAME)
    assert shared_rows(a, b) == min(a.rows, b.rows) == 13
    assert not pair_maps([a, b], (0, 1), 0, 0).parted


def test_a_prompt_that_differs_shares_nothing_after_it():
    a, b = records()
    b.prompt_ids[3] = 99
    assert shared_rows(a, b) == 3
    assert len(pair_maps([a, b], (0, 1), 0, 0).keys) == 3
    b.prompt_ids[0] = 99
    assert pair_maps([a, b], (0, 1), 0, 0) is None


def test_difference_is_first_less_second_in_points():
    a, b = records()
    pair = pair_maps([a, b], (0, 1), 1, 2)
    for r in range(10):
        expected = 100 * (a.attention[1, 2, r, : r + 1].astype(float) - b.attention[1, 2, r, : r + 1])
        assert pair.difference[r] == pytest.approx(expected, abs=0.011)
    turned = pair_maps([a, b], (1, 0), 1, 2)
    assert all((x == -y).all() for x, y in zip(pair.difference, turned.difference, strict=True))
    assert largest(pair) == max(abs(x).max() for x in pair.difference)
    assert (turned.first.letter, turned.second.letter) == ("B", "A")


def test_evicted_cells_are_those_of_the_rule():
    a, b = records()  # 2 sinks, a window of 3
    pair = pair_maps([a, b], (0, 1), 0, 0)
    assert set(pair.first.evicted) == {(0, 0)}
    for row, (start, stop) in enumerate(pair.second.evicted):
        gone = {c for c in range(row + 1) if c >= 2 and c <= row - 3}
        assert set(range(start, stop)) == gone
        assert not pair.second.weights[row][start:stop].any()
        assert (pair.difference[row][start:stop] == pair.first.weights[row][start:stop]).all()


@settings(max_examples=25)
@given(st.integers(0, 6), st.integers(1, 9), st.integers(1, 5))
def test_evicted_cells_of_several_tokens_hold_nothing_that_is_seen(sinks, window, size):
    cache = CacheConfig(sink_size=sinks, window_size=window, middle=Middle.EVICT)
    pair = pair_maps(records(cache, SAME, tokens_per_cell=size), (0, 1), 0, 0)
    for (start, stop), row, end in zip(pair.second.evicted, pair.edges[:-1], pair.edges[1:], strict=True):
        seen = {c for i in range(row, end) for c in range(i + 1) if c < sinks or c > i - window}
        for cell in range(start, stop):
            assert not seen & set(range(pair.edges[cell], pair.edges[cell + 1]))
        for cell in {*range(len(pair.keys))} - {*range(start, stop)}:
            keys = set(range(pair.edges[cell], min(end, pair.edges[cell + 1])))
            assert seen & keys or not keys or pair.edges[cell] < sinks <= pair.edges[cell + 1]


def test_cells_that_differ_are_joined():
    a = make_record(8, 6, cache=FULL, generated_ids=SAME, tokens_per_cell=2)
    b = make_record(8, 6, cache=STACK, generated_ids=SAME, tokens_per_cell=3)
    pair = pair_maps([a, b], (0, 1), 0, 1)
    assert pair.edges.tolist() == [0, 6, 12]
    assert pair.tokens_per_cell == 6
    assert pair.first.weights[1][0] == pytest.approx(100 * float(a.attention[0, 1, 3:6, :3].max()), abs=0.01)


def test_no_cell_shows_rows_that_are_not_shared():
    a, b = (make_record(8, 6, cache=FULL, generated_ids=ids, tokens_per_cell=4) for ids in (SAME, PARTS))
    assert pair_maps([a, b], (0, 1), 0, 0).edges.tolist() == [0, 4, 8]  # the third holds rows 10 and 11


def test_what_is_not_there_is_none():
    both = records()
    assert pair_maps(both, (0, 1), 7, 0) is None
    assert pair_maps(both, (0, 1), 0, 9) is None
    both[1].attention = None
    assert pair_maps(both, (0, 1), 0, 0) is None
    for draw in (
        lambda: map_figure(None, 0, 0, "log", "why"),
        lambda: difference_figure(None, 0, "log", "why"),
    ):
        assert draw()["layout"]["annotations"][0]["text"] == "why"
    assert not row_figure(None, 0, "log", "why")["data"]


# -- drawing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_figures_have_the_same_rows_columns_and_labels(scale):
    pair = pair_maps(records(), (0, 1), 1, 2)
    payloads = [
        map_figure(pair, 0, 9, scale, ""), map_figure(pair, 1, 9, scale, ""),
        difference_figure(pair, 9, scale, ""),
    ]  # fmt: skip
    for payload in payloads:
        assert payload["data"][0]["x"] == payload["data"][0]["y"] == list(pair.keys)
        assert [len(row) for row in payload["data"][0]["z"]] == list(range(1, 11))
        assert payload["layout"]["xaxis"]["range"] == payloads[0]["layout"]["xaxis"]["range"]
    assert [p["data"][0]["zmax"] for p in payloads[:2]] == [100, 100]
    assert payloads[2]["data"][0]["z"] == [x.tolist() for x in pair.difference]


def test_difference_is_centred_at_zero():
    pair = pair_maps(records(), (0, 1), 1, 2)
    for scale in ("log", "linear"):
        heat = draw_difference(pair, 9, scale).data[0]
        assert heat.zmin == -heat.zmax
        assert heat.zmax >= largest(pair)
        middle = [color for at, color in heat.colorscale if at == 0.5]
        assert set(middle) == {palette().diverging[5]}
        places = [at for at, _ in heat.colorscale]
        assert places == sorted(places)
        assert (places[0], places[-1]) == (0, 1)
    assert "B" in draw_difference(pair, 9, "log").data[0].hovertemplate


def test_colours_are_symmetrical():
    colors = palette().diverging
    assert len(colors) % 2 == 1
    for scale in (diverging_scale(), diverging_scale(4)):
        places = [at for at, _ in scale]
        assert np.allclose(places, [1 - at for at in reversed(places)])


@pytest.mark.parametrize(("value", "up"), [(0.01, 0.01), (0.012, 0.02), (3, 5), (7, 10), (50, 50), (99, 100)])
def test_the_linear_scale_ends_at_a_round_number(value, up):
    assert _rounded_up(value) == pytest.approx(up)


def test_what_is_evicted_is_outlined_in_the_colour_of_who_evicts():
    pair = pair_maps(records(), (0, 1), 0, 0)
    paths = [shape for shape in draw_difference(pair, 9, "log").layout.shapes if shape.type == "path"]
    assert len(paths) == 1
    assert paths[0].line.color == palette().run(1).color
    assert "B" in paths[0].name
    assert "evicted in B" in json.dumps(difference_figure(pair, 9, "log", "")["layout"]["annotations"])
    stack = pair_maps(records(STACK), (0, 1), 0, 0)
    assert not [s for s in draw_difference(stack, 9, "log").layout.shapes if s.type == "path"]
    assert "path" not in [shape["type"] for shape in map_figure(pair, 0, 9, "log", "")["layout"]["shapes"]]


def test_the_row_that_is_looked_at_is_framed():
    pair = pair_maps(records(), (0, 1), 0, 0)
    for row, cell in ((4, 4), (9, 9), (99, 9)):
        frames = [
            shape for shape in difference_figure(pair, row, "log", "")["layout"]["shapes"]
            if shape["type"] == "rect" and shape.get("yref") == "y"
        ]  # fmt: skip
        assert {(shape["y0"], shape["y1"]) for shape in frames} == {(cell - 0.5, cell + 0.5)}


def test_a_row_in_full_leaves_gaps_for_what_is_evicted():
    pair = pair_maps(records(), (0, 1), 0, 0)
    first, second = row_weights(pair, 9)
    assert first == pair.first.weights[9].tolist()
    assert [key for key, weight in enumerate(second) if weight is None] == [2, 3, 4, 5, 6]
    assert sum(first) == pytest.approx(100, abs=0.2)
    assert sum(weight for weight in second if weight is not None) == pytest.approx(100, abs=0.2)
    log, linear = draw_row(pair, 9, "log"), draw_row(pair, 9, "linear")
    assert list(linear.data[0].y) == first
    assert list(log.data[1].y)[2] is None
    assert log.data[1].connectgaps is False
    assert log.layout.yaxis.type == "log"
    assert min(w for w in log.data[0].y if w is not None) >= 0.01
