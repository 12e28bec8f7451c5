"""What recorded steps come to, against sums done by hand and, for the overlap, by sampling time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.events import TIMELINE_KINDS, StepTimeline
from kvviz.timeline import LINKS, Link, check, costs, from_arrays, hidden_ms, link_times, to_arrays


def made(*spans: tuple[str, int, float, float, int], rows: int = 1, notes: tuple[str, ...] = ()):
    """From (kind, layer, start, stop, bytes)."""
    kinds, layers, starts, stops, sizes = zip(*sorted(spans, key=lambda span: span[2]), strict=True)
    return StepTimeline(
        rows=rows,
        kinds=np.asarray([TIMELINE_KINDS.index(kind) for kind in kinds], np.uint8),
        layers=np.asarray(layers, np.int16),
        start_ms=np.asarray(starts, np.float32),
        stop_ms=np.asarray(stops, np.float32),
        n_bytes=np.asarray(sizes, np.int64),
        notes=notes,
    )


SYNCHRONOUS = made(
    ("copy_in", 0, 0, 2, 1000), ("compute", 0, 2, 6, 0), ("copy_in", 1, 6, 9, 3000), ("compute", 1, 9, 12, 0),
    ("copy_out", 1, 12, 13, 500), ("compute", 2, 13, 16, 0), notes=("copies_synchronous",),
)  # fmt: skip
BESIDE = made(
    ("copy_in", 0, 0, 2, 1000), ("wait", 0, 0, 2, 0), ("compute", 0, 2, 6, 0), ("copy_in", 1, 3, 7, 3000),
    ("wait", 1, 6, 7, 0), ("compute", 1, 7, 9, 0), rows=2,
)  # fmt: skip


def test_times_and_bytes_by_kind() -> None:
    found = costs([SYNCHRONOUS, None, BESIDE])
    assert found is not None
    assert (found.steps, found.rows, found.total_ms) == (2, 3, 25)
    assert dict(found.ms) == {
        "compute": 16, "copy_in": 11, "copy_out": 1, "host_attention": 0, "wait": 3, "look": 0
    }  # fmt: skip
    assert found.n_bytes["copy_in"] == 8000
    assert found.bytes_per_token("copy_in") == pytest.approx(8000 / 3)
    assert found.bytes_per_token("copy_out") == pytest.approx(500 / 3)
    assert found.n_spans["compute"] == 5
    assert found.notes == ("copies_synchronous",)
    assert costs([None, None]) is None


def test_synchronous_copies_overlap_nothing_and_others_what_they_do() -> None:
    assert costs([SYNCHRONOUS]).overlap == 0
    assert costs([BESIDE]).overlap == pytest.approx(3 / 6)
    assert costs([made(("compute", 0, 0, 1, 0))]).overlap is None


@given(
    st.lists(
        st.tuples(st.sampled_from(TIMELINE_KINDS), st.integers(0, 3), st.integers(0, 40), st.integers(0, 20)),
        min_size=1,
        max_size=12,
    )
)
def test_overlap_is_what_sampling_finds(spans) -> None:
    """Half milliseconds between whole ones are in a span or out of it, never at an edge."""
    timeline = made(*((kind, layer, at, at + long, 1) for kind, layer, at, long in spans))
    moments = np.arange(0, 70) + 0.5

    def within(kinds: set[str]) -> list[np.ndarray]:
        return [(moments > at) & (moments < at + long) for kind, _, at, long in spans if kind in kinds]

    busy = np.any([np.zeros(70, bool), *within({"compute", "host_attention"})], axis=0)
    expected = sum(int((copy & busy).sum()) for copy in within({"copy_in", "copy_out"}))
    assert hidden_ms(timeline) == pytest.approx(expected)


def test_a_link_is_bytes_over_its_rate() -> None:
    assert {link.key: link.bytes_per_s / 1e9 for link in LINKS} == {
        "pcie3": 15.75, "pcie4": 31.5, "pcie5": 63, "nvlink_c2c": 450, "nvme": 7.88
    }  # fmt: skip
    assert Link("x", "", 1e9).ms(2_000_000) == 2
    found = link_times(SYNCHRONOUS, Link("x", "", 500_000))  # 500 bytes a ms
    assert (found.in_ms, found.out_ms, found.handed_ms) == (8, 1, 0)
    # layer 0 hides behind nothing: 2 ms; layer 1 takes 6 ms while layer 0 computes 4
    assert found.waits_ms == 4
    assert found.hidden == pytest.approx(0.5)


def test_each_chunk_hides_behind_its_own_layers() -> None:
    """Two passes of one layer each: the long computing of the second does not hide the first's copy."""
    chunks = made(
        ("copy_in", 1, 0, 1, 1000), ("compute", 0, 1, 2, 0), ("compute", 1, 2, 3, 0), ("compute", 2, 3, 4, 0),
        ("copy_in", 1, 4, 5, 1000), ("compute", 0, 5, 95, 0), ("compute", 2, 95, 96, 0),
    )  # fmt: skip
    assert link_times(chunks, Link("x", "", 100_000)).waits_ms == pytest.approx(10 - 1 + 0)


def same(a: StepTimeline | None, b: StepTimeline | None) -> bool:
    if a is None or b is None:
        return a is b
    names = ("kinds", "layers", "start_ms", "stop_ms", "n_bytes")
    alike = all(np.array_equal(getattr(a, n), getattr(b, n)) for n in names)
    return alike and (a.rows, a.notes) == (b.rows, b.notes)


def test_arrays_and_back() -> None:
    given = [None, SYNCHRONOUS, None, BESIDE]
    arrays = to_arrays(given)
    assert all(map(same, given, from_arrays(arrays, 4)))
    assert to_arrays([None, None]) == {}
    assert from_arrays({}, 2) == [None, None], "a record from before there were timelines"
    with pytest.raises(ValueError, match="timeline"):
        from_arrays(arrays | {"timeline_kinds": arrays["timeline_kinds"][1:]}, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"kinds": np.uint8([6] * 6)}, {"layers": np.int16([3] * 6)}, {"layers": np.int16([-1] * 6)},
        {"n_bytes": np.int64([-1] * 6)}, {"start_ms": np.float32([99] * 6)}, {"rows": -1},
        {"stop_ms": np.float32([np.nan] * 6)}, {"stop_ms": np.float32([np.inf] * 6)},
    ],
)  # fmt: skip
def test_what_no_run_writes_is_refused(change) -> None:
    check([SYNCHRONOUS, None], n_layers=2)
    with pytest.raises(ValueError, match="timeline"):
        check([replace(SYNCHRONOUS, **change)], n_layers=2)
