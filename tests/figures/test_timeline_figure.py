"""The timeline as data: what is drawn is what was recorded; what cannot be drawn says why."""

from __future__ import annotations

import base64
from dataclasses import replace

import numpy as np
import pytest

from kvviz.catalogue import languages, speaking, text
from kvviz.events import TIMELINE_KINDS, StepTimeline
from kvviz.figures import offload
from kvviz.figures.timeline import draw_timeline, lanes, step_of, timeline_at, timeline_figure
from kvviz.record import RunRecord
from kvviz.timeline import LINKS, costs, link_named
from tests.builders import STACK, make_record
from tests.test_timeline import SYNCHRONOUS, made

HOST = made(("compute", 0, 0, 2, 0), ("host_attention", 0, 2, 3, 700), ("compute", 1, 3, 4, 0),
            ("look", 1, 4, 5, 0), notes=("host_is_device",))  # fmt: skip


def recorded(*timelines: StepTimeline | None, **more) -> RunRecord:
    record = make_record(8, len(timelines), cache=STACK)
    return replace(record, timelines=list(timelines), **more)


def words_of(payload: dict) -> str:
    return " ".join(note["text"] for note in payload["layout"]["annotations"]).replace("<br>", " ")


def test_a_lane_a_kind_with_what_is_in_it() -> None:
    drawn = lanes(SYNCHRONOUS)
    assert [lane.kind for lane in drawn] == ["compute", "copy_in", "copy_out"]
    assert drawn[1].layers.tolist() == [0, 1]
    assert drawn[1].start_ms.tolist() == [0, 6]
    assert drawn[1].ms.tolist() == [2, 3]
    assert drawn[1].n_bytes.tolist() == [1000, 3000]
    assert [lane.kind for lane in lanes(HOST)] == [k for k in TIMELINE_KINDS if k != "wait"]


def test_bars_lie_where_spans_were() -> None:
    figure = draw_timeline(lanes(SYNCHRONOUS), n_layers=2)
    for trace, lane in zip(figure.data, lanes(SYNCHRONOUS), strict=True):
        assert trace.orientation == "h"
        assert list(trace.base) == lane.start_ms.tolist()
        assert list(trace.x) == lane.ms.tolist()
    after = figure.data[0].customdata[-1]
    assert after[0] == text("offload.timeline.after")
    assert figure.data[1].customdata[1] == ("layer 1", 6.0, 3.0, 3000) or list(
        figure.data[1].customdata[1]
    ) == ["layer 1", 6.0, 3.0, 3000]
    assert len({trace.marker.color for trace in figure.data}) == 3
    assert "measured" in figure.data[0].hovertemplate
    opacity = figure.data[0].marker.opacity
    assert opacity[0] != opacity[1], "neighbouring layers differ"


def test_every_kind_has_a_colour_of_its_own() -> None:
    every = made(*((kind, 0, at, at + 1, 0) for at, kind in enumerate(TIMELINE_KINDS)))
    colors = [trace.marker.color for trace in draw_timeline(lanes(every), 1).data]
    assert len(set(colors)) == len(TIMELINE_KINDS)


def test_the_step_follows_the_choice() -> None:
    record = recorded(SYNCHRONOUS, HOST, None)
    assert [step_of(record, step) for step in (None, 0, 1, 99, -5)] == [2, 0, 1, 2, 0]
    assert timeline_at(record, 0) is SYNCHRONOUS
    assert timeline_at(RunRecord(), None) is None
    payload = timeline_figure(record, 0)
    x = payload["data"][1]["x"]
    assert np.frombuffer(base64.b64decode(x["bdata"]), x["dtype"]).tolist() == [2, 3]


@pytest.mark.parametrize("language", languages())
def test_where_there_is_none_it_is_said_why(language: str) -> None:
    near = recorded(None, None)
    near.config["cache"] = near.config["cache"] | {"offload": "none"}
    cases = {
        "none": RunRecord(),
        "near": near,
        "step": recorded(SYNCHRONOUS, None),
        "unrecorded": recorded(None, None),
    }
    with speaking(language):
        for key, record in cases.items():
            said = words_of(timeline_figure(record, None)).replace(" ", "")
            assert said == text(f"offload.empty.{key}").replace(" ", ""), key
        assert words_of(timeline_figure(RunRecord(status="prefill"), None))


def test_sentences_say_the_sums_and_the_notes() -> None:
    record = recorded(SYNCHRONOUS, SYNCHRONOUS, SYNCHRONOUS)
    said = " ".join(offload.sentences(record, 1, None))
    for words in ("B, step 2 of 2", "16.0 ms", "10.0 ms computing", "Overlap 0.0 %", "6.00 ms of copying",
                  "3.91 KiB in", "500 B out", "Copies are synchronous"):  # fmt: skip
        assert words in said, words
    assert "the prompt" in offload.sentences(record, 0, 0)[0]
    said = " ".join(offload.sentences(recorded(HOST, HOST), 0, None))
    for words in ("Nothing was copied", "700 B handed over", "The host is the device"):
        assert words in said, words


def test_the_table_by_kind_adds_up() -> None:
    record = recorded(SYNCHRONOUS, SYNCHRONOUS)
    table = offload.kind_table(record, None)
    by_kind = {row[0]: row for row in table["sort"]}
    shown = costs([SYNCHRONOUS])
    assert sum(row[1] for row in table["sort"]) == shown.total_ms
    assert sum(row[2] for row in table["sort"]) == pytest.approx(1)
    assert by_kind["copy in"][3:] == [4000, 5.0, 4000, 5.0, 4000]
    assert by_kind["compute"][3] is None
    assert len(table["cells"][0]) == len(table["columns"]) == 8
    assert offload.kind_table(recorded(None), None) is None


def test_links_are_bytes_over_rates() -> None:
    table = offload.link_table(recorded(SYNCHRONOUS), None)
    assert len(table["sort"]) == len(LINKS)
    assert "computed from bytes" in table["title"]
    assert [column["label"] for column in table["columns"]] == ["Link", "In", "Out", "Waited for", "Hidden"]
    pcie4 = next(row for row in table["sort"] if row[0].startswith("PCIe 4 x16"))
    assert pcie4[1] == pytest.approx(1000 * 4000 / 31.5e9)
    assert pcie4[2] == pytest.approx(1000 * 500 / 31.5e9)
    said = offload.link_sentence(SYNCHRONOUS, link_named("nvme"))
    assert "7.88 GB/s" in said
    assert "computed from bytes" in said
    assert "handed over" in offload.link_sentence(HOST, link_named("pcie3"))
    assert link_named("no such link").key == "pcie4"
