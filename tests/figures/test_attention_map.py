"""The attention map: values, ragged rows, labels by position, boundaries, size."""

import json

import numpy as np
import pytest

from kvviz.events import TokenLabel
from kvviz.figures.attention_map import attention_data, attention_figure
from kvviz.record import RunRecord
from tests.builders import EVICT, FULL, STACK, make_attention, make_events, make_facts, make_record, record_of


def test_rows_hold_the_recorded_weights_in_percent_and_only_what_a_query_sees():
    data = attention_data(make_record(8, 4), 1, 2)
    assert [len(row) for row in data.rows] == list(range(1, 12))  # 11 rows: the 12th token has no row
    maps = make_attention(STACK, make_facts(), 11)
    for i, row in enumerate(data.rows):
        expected = maps[1, 2, i, : i + 1].astype(np.float16).astype(np.float64) * 100
        np.testing.assert_allclose(row, expected, atol=0.005 + 1e-9)


def test_labels_stand_by_position_and_the_newest_token_has_no_row():
    data = attention_data(make_record(8, 4), 0, 0)
    assert data.keys[0] == "0 w0"
    assert data.keys[10] == "10 ␠w10"
    assert len(data.keys) == len(data.rows) == 11


def test_live_run_keeps_the_whole_grid_with_empty_rows():
    data = attention_data(make_record(8, 2, end=None), 0, 0)
    assert [len(row) for row in data.rows] == [*range(1, 10), 0]  # the grid holds all tokens asked for
    assert data.keys[9] == "9 ␠w9"


def test_cells_of_several_tokens_say_so_and_show_ranges():
    record = make_record(10, 3, tokens_per_cell=4)
    data = attention_data(record, 0, 0)
    assert data.tokens_per_cell == 4
    assert data.keys[1].startswith("4–7 ")
    notes = json.dumps(attention_figure(record, 0, 0)["layout"]["annotations"])
    assert "1 cell = 4 tokens" in notes
    whole = make_attention(STACK, make_facts(), 12)[0, 0]
    assert data.rows[1][0] == pytest.approx(100 * float(np.float16(whole[4:8, 0:4].max())), abs=0.006)


def test_boundaries_are_the_newest_rows_spans():
    data = attention_data(make_record(8, 4), 0, 0)
    assert [(b.tier, b.start, b.stop) for b in data.boundaries] == [
        ("sink", 0, 2),
        ("offloaded", 2, 8),
        ("window", 8, 11),
    ]
    names = {b.tier for b in attention_data(make_record(8, 4, cache=EVICT), 0, 0).boundaries}
    assert names == {"sink", "evicted", "window"}


def test_both_scales_carry_the_same_values():
    record = make_record(8, 4, cache=FULL)
    linear, log = (attention_figure(record, 0, 1, scale) for scale in ("linear", "log"))
    assert linear["data"][0]["z"] == log["data"][0]["z"]
    assert linear["data"][0]["colorscale"] != log["data"][0]["colorscale"]
    assert linear["data"][0]["showscale"]
    assert not log["data"][0]["showscale"]  # its bar, in logarithmic steps, belongs to the second trace
    assert linear["layout"]["yaxis"]["range"] == [10.5, -0.5]


@pytest.mark.parametrize("tokens_per_cell", [1, 4])
def test_a_full_map_stays_under_200_kb(tokens_per_cell):
    tokens = 320 * tokens_per_cell
    facts = make_facts(1, 1, 1, 16)
    record = make_record(tokens - 2, 3, cache=FULL, facts=facts, tokens_per_cell=tokens_per_cell)
    payload = attention_figure(record, 0, 0, "log")
    sent = json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    assert sum(len(row) for row in payload["data"][0]["z"]) == 255 * 256 // 2
    assert len(sent) < 200_000


@pytest.mark.parametrize("tokens_per_cell", [1, 4])
def test_a_map_of_more_cells_than_fit_joins_neighbours_and_keeps_their_maximum(tokens_per_cell):
    facts = make_facts(1, 1, 1, 16)
    record = make_record(
        300 * tokens_per_cell - 1, 2, cache=FULL, facts=facts, tokens_per_cell=tokens_per_cell
    )
    data = attention_data(record, 0, 0)
    assert len(data.keys) == len(data.rows) == 255  # the newest token has none
    assert data.tokens_per_cell == 2 * tokens_per_cell
    whole = np.round(record.attention[0, 0].astype(np.float64) * 100, 2)
    first = 16 if tokens_per_cell == 1 else 0
    pair = slice(first + 2, first + 4)
    assert data.rows[-1][first + 1] == whole[-2, pair].max()
    assert data.rows[first + 1][first] == whole[pair, first : first + 2].max()
    assert data.rows[-1][-1] == whole[-2, -2]
    assert data.keys[-1].startswith(str(300 * tokens_per_cell - tokens_per_cell))


def test_token_text_is_literal():
    events = make_events(8, 2, generated=[TokenLabel("<b>${1}", b"<b>"), TokenLabel("&amp;", b"&")])
    keys = attention_data(record_of(events), 0, 0).keys
    assert keys[8] == "8 &lt;b&gt;${1}"


@pytest.mark.parametrize("place", [(5, 0), (0, 9), (-1, 0)])
def test_no_such_layer_or_head_is_a_sentence(place):
    payload = attention_figure(make_record(8, 4), *place)
    assert payload["data"] == []
    assert payload["layout"]["annotations"][0]["text"]


@pytest.mark.parametrize(
    "record", [RunRecord(), make_record(8, 0, end=None), make_record(8, 0, end="failed")]
)
def test_no_map_is_a_sentence(record):
    assert attention_figure(record, 0, 0)["data"] == []
