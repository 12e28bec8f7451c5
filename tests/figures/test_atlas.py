"""Thumbnails, large maps, the table of heads and the replay as the page gets them."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

from kvviz.catalogue import ASSETS_DIR
from kvviz.events import HeadSummary, MapGrid, TokenLabel
from kvviz.figures import atlas, atlas_replay, atlas_table
from kvviz.figures.packing import png_gray, unpack_numbers
from kvviz.figures.strip import strip_data
from kvviz.record import RunRecord
from kvviz.ui.atlas_views import ATLAS
from kvviz.ui.components import encode
from kvviz.ui.desk import AtlasChoice, Desk
from kvviz.ui.views import packed_strip
from tests.builders import EVICT, FULL, STACK, make_facts, make_record, make_spans


def pixels(png: bytes) -> np.ndarray:
    """What a grey PNG without line filters holds."""
    width, height = struct.unpack(">II", png[16:24])
    at = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[at - 4 : at])
    assert struct.unpack(">I", png[at + 4 + length : at + 8 + length])[0] == zlib.crc32(
        png[at : at + 4 + length]
    )
    lines = np.frombuffer(zlib.decompress(png[at + 4 : at + 4 + length]), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()
    return lines[:, 1:]


def triangle(side: dict) -> np.ndarray:
    """A packed lower triangle as a square; NaN above the diagonal."""
    square = np.full((side["rows"], side["rows"]), np.nan)
    square[np.tril_indices(side["rows"])] = unpack_numbers(side["values"]) * side["unit"]
    return square


def text_tokens(count: int) -> list[TokenLabel]:
    """Words of this project's own texts, as a tokenizer would cut them."""
    source = " ".join(
        path.read_text(encoding="utf-8") for path in sorted((ASSETS_DIR / "text").rglob("*.json"))
    )
    words = re.findall(r"\w{1,6}|\S", source)
    return [TokenLabel(f"␠{words[i % len(words)]}", b"") for i in range(count)]


def large_record(cells: int = 320, seed: int = 0) -> RunRecord:
    """A record as of 8,192 tokens on the default model: 30 layers, 9 heads, softmax rows over ``cells``."""
    generator = np.random.default_rng(seed)
    one_layer = generator.normal(scale=2.0, size=(9, cells, cells)).astype(np.float32)
    one_layer[..., 0] += 5
    weights = np.where(np.tri(cells, dtype=bool), np.exp(one_layer), 0)
    weights /= weights.sum(-1, keepdims=True)
    layers = np.stack([np.roll(weights, layer, axis=0) ** (1 + layer / 30) for layer in range(30)])
    base = make_record(8, 4, facts=make_facts(n_layers=30, n_heads=9), label="large")
    received = generator.dirichlet(np.full(8192, 0.3)).astype(np.float32)
    words = text_tokens(8192 + 4)
    newest = np.arange(8192 - 160, 8192 + 1)
    coarse = np.linspace(4, newest[0], cells - 4 - 160 + 1).astype(np.int64)
    edges = np.concatenate([np.arange(4), coarse, newest[1:]])
    return replace(
        base,
        attention=layers.astype(np.float16),
        grid=MapGrid(edges, 51),
        labels=words,
        prompt_ids=[0] * 8192,
        spans=[make_spans(STACK, 8192 + i) for i in range(4)],
        received=[received] * 4,
    )


def test_a_png_keeps_every_level():
    levels = np.random.default_rng(0).integers(0, 256, (5, 7)).astype(np.uint8)
    np.testing.assert_array_equal(pixels(png_gray(levels)), levels)


def test_a_thumbnail_is_the_largest_weight_of_its_cells_in_even_steps_of_the_logarithm():
    record = make_record(40, 6, cache=FULL)
    made = atlas.thumbs(record, range(2))
    assert made.levels.shape == (2, 4, 24, 24)
    assert not made.levels[:, :, *np.triu_indices(24, 1)].any(), "no pixel for keys in the future"
    whole = record.attention[1, 2, :45, :45].astype(np.float32)
    starts = np.arange(24) * 45 // 24
    pooled = np.maximum.reduceat(np.maximum.reduceat(whole, starts, axis=0), starts, axis=1)
    share = 1 + np.log10(np.clip(pooled, 1e-4, 1)) / 4
    np.testing.assert_array_equal(
        made.levels[1, 2][np.tri(24, dtype=bool)], (1 + np.round(share * 7))[np.tri(24, dtype=bool)]
    )


def test_the_sprite_holds_the_second_configuration_mirrored():
    a, b = (atlas.thumbs(make_record(40, 6, cache=cache), range(2)) for cache in (FULL, EVICT))
    picture = pixels(base64.b64decode(atlas.sprite([a, b])))
    assert picture.shape == (4 * 24, 2 * 25)
    head_3_layer_1 = picture[3 * 24 :, 25:]
    np.testing.assert_array_equal(np.tril(head_3_layer_1[:, :24]), a.levels[1, 3])
    np.testing.assert_array_equal(np.tril(head_3_layer_1[:, 1:].T), b.levels[1, 3])
    alone = pixels(base64.b64decode(atlas.sprite([a])))
    assert not np.triu(alone[:24, :24], 1).any()


def test_a_live_run_fills_its_thumbnails_row_by_row():
    live = make_record(20, 3, end=None)
    live.attention[:, :, 10:] = 0
    made = atlas.thumbs(live, range(2))
    assert atlas.row_count(live) == 10
    assert made.levels[:, :, :9].any(axis=(0, 1, 3)).all()
    assert not made.levels[:, :, 13:].any()


def test_more_than_512_heads_are_paged_by_layer():
    assert atlas.page_of(14, 30, 9) == range(30)
    assert atlas.page_of(20, 32, 32) == range(16, 32)
    assert atlas.page_of(35, 36, 40) == range(24, 36)
    record = make_record(8, 3, facts=make_facts(n_layers=40, n_heads=16, n_kv_heads=4))
    desk = Desk(choice=AtlasChoice(layer=35))
    value = ATLAS["atlas_thumbs"]([record, record], desk, "r")
    assert (value["first"], value["layers"], value["page_layers"]) == (32, 8, 32)
    assert pixels(base64.b64decode(value["sprite"])).shape == (16 * value["size"], 8 * (value["size"] + 1))


def test_a_map_is_the_recorded_weights_in_hundredths_of_a_percent():
    record = make_record(8, 4)
    side = atlas.map_side(record, 1, 2, "probability")
    assert (side["rows"], side["cells"], side["k"], side["sinks"], side["prompt"]) == (11, 11, 1, 2, 8)
    assert side["labels"][10] == "␠w10"
    seen = np.tri(11, dtype=bool)
    recorded = 100 * record.attention[1, 2, :11, :11].astype(np.float64)
    np.testing.assert_allclose(triangle(side)[seen], recorded[seen], atol=0.005 + 1e-9)
    np.testing.assert_allclose(np.nansum(triangle(side), axis=1), 100, atol=0.1)
    mean = atlas.map_side(record, 1, 0, "mean")
    over_heads = 100 * record.attention[1, :, :11, :11].astype(np.float64).mean(0)
    np.testing.assert_allclose(triangle(mean)[seen], over_heads[seen], atol=0.02)


def test_logits_keep_sign_and_say_where_none_is():
    logits = np.array([-7.25, 0.0, -np.inf, 12.5])
    packed = atlas.pack_logits(logits)
    numbers = unpack_numbers(packed["values"]).astype(np.float64)
    back = np.where(numbers > 0, packed["base"] + packed["unit"] * (numbers - 1), -np.inf)
    np.testing.assert_allclose(back, logits, atol=0.005)
    assert (packed["low"], packed["high"]) == (-7.25, 12.5)


def test_a_whole_frame_of_8192_tokens_and_two_configurations_stays_under_200_kb():
    record = large_record()
    desk = Desk(choice=AtlasChoice(shown="both", layer=14, head=1))
    sizes = {name: len(encode(build([record, record], desk, "r"))) for name, build in ATLAS.items()}
    assert sizes["atlas_map"] > 40_000, "there is something in it"
    assert sizes["atlas_strip_a"] > 10_000, "and in it"
    assert sum(sizes.values()) < 200_000, sizes


def summary(first: list[list[float]]) -> HeadSummary:
    mass = np.asarray(first, dtype=np.float32)
    tiers = np.zeros((*mass.shape, 5), dtype=np.float32)
    tiers[..., 0], tiers[..., 1] = mass, 1 - mass
    return HeadSummary(50, mass, tiers, np.full_like(mass, 1.234), np.full_like(mass, 17.27))


def test_the_sentence_counts_sinks_and_names_the_strongest():
    said = atlas_table.sink_sentence(summary([[0.1, 0.31], [0.92, 0.3]]))
    assert said.startswith("2 of 4 heads put more than 30 %")
    assert "layer 1, head 0 (92 %)" in said
    assert atlas_table.sink_sentence(summary([[0.1, 0.31]])).startswith("1 of 2 heads puts")


def test_a_model_without_a_sink_is_told_so():
    said = atlas_table.sink_sentence(summary([[0.02, 0.04], [0.03, 0.01]]))
    assert said.startswith("No head of this model")
    assert "there is no sink here" in said
    assert "4 %, layer 0, head 1" in said


def test_the_table_has_one_number_a_head_and_explains_each_column():
    columns = {
        column["key"]: column for column in atlas_table.table_columns(summary([[0.1, 0.31], [0.92, 0.3]]))
    }
    assert list(columns) == [
        "first",
        "sink",
        "window",
        "exact",
        "quantized",
        "offloaded",
        "entropy",
        "distance",
    ]
    assert columns["first"]["numbers"] == [100, 310, 920, 300]
    assert columns["window"]["numbers"] == [900, 690, 80, 700]
    assert columns["entropy"]["numbers"][0] * columns["entropy"]["unit"] == pytest.approx(1.23)
    assert columns["distance"]["numbers"][0] * columns["distance"]["unit"] == pytest.approx(17.3)
    assert all(column["meaning"].endswith(".") for column in columns.values())


def test_the_table_follows_the_step():
    record = make_record(8, 4)
    assert atlas_table.summary_at(record, 1) is record.head_summary[1]
    assert atlas_table.summary_at(record, None) is record.head_summary[3]
    assert atlas_table.summary_at(record, 99) is record.head_summary[3]
    assert atlas_table.summary_at(RunRecord(), None) is None


def test_a_step_of_the_replay_is_the_records_step():
    record = make_record(8, 4)
    assert [atlas_replay.clamp(record, step) for step in (None, 0, 2, 9)] == [3, 0, 2, 3]
    spans = atlas_replay.spans_at(record, 1)
    assert [span[1:] for span in spans] == [
        [span.start, span.stop] for span in sorted(record.spans[1], key=lambda s: s.start)
    ]
    memory = atlas_replay.memory_at(record, 1)
    assert memory["total"] == record.memory[1].used_bytes == sum(n for _, n in memory["tiers"])
    assert memory["most"] == max(snapshot.used_bytes for snapshot in record.memory)
    assert atlas_replay.memory_at(RunRecord(), -1)["tiers"] == []


@pytest.mark.parametrize(
    ("cell", "window"),
    [(0, (0, 64)), (5, (0, 64)), (8, (26, 90)), (11, (36, 100))],
)
def test_a_tile_is_64_tokens_around_its_cell_within_the_run(cell, window):
    edges = np.array([*range(4), *range(4, 100, 12), 100])
    assert atlas_replay.tile_window(edges, cell, 100) == window


def test_a_cell_of_more_tokens_is_its_own_tile():
    assert atlas_replay.tile_window(np.array([0, 100, 200]), 1, 180) == (100, 180)


def test_a_packed_strip_is_the_same_strip():
    record = make_record(8, 4)
    data = strip_data(record)
    packed = packed_strip(data)
    codes = [
        code for code, n in zip(packed["tiers"][::2], packed["tiers"][1::2], strict=True) for _ in range(n)
    ]
    assert codes == data["tiers"]
    assert zlib.decompress(base64.b64decode(packed["labels"])).decode().split("\n") == data["labels"]
    low, high = unpack_numbers(packed["received"]).reshape(2, -1).astype(np.int64)
    assert (low + 65536 * high).tolist() == data["received"]
    assert packed_strip(strip_data(RunRecord()))["tiers"] == []
