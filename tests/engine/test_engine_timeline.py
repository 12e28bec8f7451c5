"""A run that offloads tells when what happened; recording changes nothing; faults in the middle of a copy."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest
import torch

import kvviz.cache.fetch
import kvviz.cache.pieces
from kvviz.array_text import Allowance
from kvviz.cache.ledger import live_bytes
from kvviz.config import CacheConfig, Middle, Offload, OffloadRead, Prefill, RunConfig
from kvviz.engine import run
from kvviz.events import TIMELINE_KINDS, PrefillProgress, RunFailed, RunFinished, StepTimeline, TokenGenerated
from kvviz.offload import DiskStore, HostStore
from kvviz.offload.copies import InlineCopies, ThreadCopies
from kvviz.offload.stores import FOLDER_VARIABLE
from kvviz.quant_config import QuantConfig
from kvviz.record import RunRecord
from kvviz.record_text import from_text, to_text
from kvviz.timeline import costs

INT8 = QuantConfig.parse("int8:token:g16:absmax")
LAYERS, KV_HEADS = 2, 2
#: K and V of one token over all layers: codes and a 16-bit scale
SEALED_TOKEN_BYTES = 2 * LAYERS * KV_HEADS * (16 + 2)


def asked(offload: str = "host", tokens: int = 12, **more) -> RunConfig:
    cache = CacheConfig(2, 4, Middle.QUANTIZE, 4, INT8, INT8, offload=Offload.parse(offload), **more)
    return RunConfig("a prompt of several chunks", cache, "", False, tokens, chunk_size=8)


@pytest.fixture
def model(tiny):
    return tiny(dtype=torch.float32)


def told(model, config: RunConfig, **more) -> tuple[list[int], list[StepTimeline | None]]:
    events = [e for e in run(model, config, **more) if isinstance(e, TokenGenerated)]
    return [e.token_id for e in events], [e.state.timeline for e in events]


def kinds(timeline: StepTimeline) -> set[str]:
    return {TIMELINE_KINDS[kind] for kind in timeline.kinds}


def bytes_of(timeline: StepTimeline, kind: str) -> int:
    return int(timeline.n_bytes[timeline.kinds == TIMELINE_KINDS.index(kind)].sum())


@pytest.mark.parametrize("offload", ["host", "disk", "device:4t,host"])
def test_bytes_are_those_of_the_blocks(model, offload) -> None:
    """Every step brings all far codes back once, and writes each block out once."""
    events = [e for e in run(model, asked(offload)) if isinstance(e, TokenGenerated)]
    near = 4 if offload.startswith("device") else 0
    prompt = 26
    sealed_before = 0
    for event in events:
        timeline = event.state.timeline
        assert timeline is not None
        assert timeline.rows == (prompt if event.step == 0 else 1)
        sealed = event.state.seal_error.sealed_tokens
        fresh = max(0, sealed - near) - max(0, sealed_before - near)
        assert bytes_of(timeline, "copy_out") == fresh * SEALED_TOKEN_BYTES
        if event.step:
            assert bytes_of(timeline, "copy_in") == (sealed - near) * SEALED_TOKEN_BYTES
        sealed_before = sealed
    assert sealed_before > 16


def test_spans_follow_one_another_and_cover_the_step(model) -> None:
    record = RunRecord()
    for event in run(model, asked()):
        record.apply(event)
    for step, timeline in enumerate(record.timelines):
        assert timeline is not None
        starts, stops = (x.astype(np.float64) for x in (timeline.start_ms, timeline.stop_ms))
        assert (np.diff(starts) >= 0).all()
        assert (starts[1:] >= stops[:-1] - 1e-3).all(), "nothing goes on beside anything on a CPU"
        assert (stops - starts).sum() == pytest.approx(stops.max(), rel=0.02), "no gap"
        assert stops.max() <= record.step_ms[step]
        computed = timeline.layers[timeline.kinds == TIMELINE_KINDS.index("compute")]
        assert set(computed) == {0, 1, LAYERS}
        assert timeline.notes == ("copies_synchronous",)
        assert kinds(timeline) <= {"compute", "copy_in", "copy_out", "look"}
    assert costs(record.timelines).overlap == 0


@pytest.mark.parametrize("watched", [True, False])
def test_watching_is_a_kind_of_its_own(model, watched) -> None:
    """Attention shares are always watched; without maps it is less, and still told."""
    for timeline in told(model, asked(), capture_attention=watched)[1]:
        assert "look" in kinds(timeline)


def test_what_the_host_computes_is_told_with_what_it_hands_over(model) -> None:
    _, timelines = told(model, asked(offload_read=OffloadRead.ON_HOST))
    for timeline in timelines[1:]:
        assert "host_attention" in kinds(timeline)
        assert "copy_in" not in kinds(timeline)
        # query and output (H, D), log-sum-exp (H), in fp32
        assert bytes_of(timeline, "host_attention") == LAYERS * 4 * 4 * (2 * 16 + 1)
        assert timeline.notes == ("host_is_device",)


def test_an_exact_prompt_writes_when_it_has_been_read(model) -> None:
    _, timelines = told(model, asked(prefill=Prefill.EXACT))
    assert bytes_of(timelines[0], "copy_out") == 20 * SEALED_TOKEN_BYTES
    assert bytes_of(timelines[0], "copy_in") == 0


def test_nothing_is_recorded_where_nothing_is_offloaded(model) -> None:
    assert set(told(model, asked("none"))[1]) == {None}


def test_recording_changes_no_number(model) -> None:
    def logits(enabled: bool) -> torch.Tensor:
        session = model.new_session(asked("disk").cache)
        session.timeline.enabled = enabled
        rows = [
            model.forward(list(range(start, start + 6)), session, last_only=False)
            for start in range(0, 60, 6)
        ]
        assert (session.take_timeline() is not None) == enabled
        assert session.take_timeline() is None
        return torch.cat(rows)

    assert torch.equal(logits(True), logits(False))


def test_records_carry_it_and_older_ones_open(model, tmp_path) -> None:
    record = RunRecord()
    for event in run(model, asked()):
        record.apply(event)
    record.save(tmp_path / "run.npz")
    again = RunRecord.load(tmp_path / "run.npz")
    assert costs(again.timelines) == costs(record.timelines)
    header, arrays = record.to_parts()
    older = {name: values for name, values in arrays.items() if not name.startswith("timeline_")}
    assert RunRecord.from_parts(header, older).timelines == [None] * len(record.step_ms)


# -- faults --------------------------------------------------------------------------------------------------


class SlowCopies(ThreadCopies):
    """By a thread, and slowly: a copy is under way most of the time."""

    under_way = 0

    def __init__(self) -> None:
        super().__init__(InlineCopies())

    def start(self, copy, after):
        def slow() -> None:
            type(self).under_way += 1
            time.sleep(0.004)
            copy()
            type(self).under_way -= 1

        return super().start(slow, after)


@pytest.fixture
def slow(monkeypatch):
    SlowCopies.under_way = 0
    monkeypatch.setattr(kvviz.cache.fetch, "open_copies", lambda device, from_disk: SlowCopies())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def copying_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "kvviz-copies"]


def test_copies_by_a_thread_overlap_and_change_nothing(model, slow) -> None:
    ids, timelines = told(model, asked())
    assert ids == told(model, asked("none"))[0]
    found = costs(timelines[1:])
    assert found.ms["copy_in"] > 0
    assert found.ms["wait"] > 0
    assert "copies_synchronous" not in found.notes
    assert found.overlap > 0, "something was computed meanwhile"
    assert copying_threads() == []


@pytest.mark.parametrize("how", ["stopped", "failed", "left"])
def test_cancelled_in_the_middle_of_a_copy(model, slow, monkeypatch, tmp_path, how) -> None:
    """Whatever ends a run while a copy is under way: no thread, no file, no memory; the next one works."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    expected = told(model, asked("disk", 40))[0]
    files, stop, sessions = open_files(), threading.Event(), []
    new_session, attend = model.new_session, kvviz.cache.session.CacheSession.attend
    caught_under_way = []

    def make(config):
        sessions.append(weakref.ref(session := new_session(config)))
        return session

    def interrupted(session, layer, query, scale):
        output = attend(session, layer, query, scale)
        if layer == 0 and session.seen_tokens > 40 and not caught_under_way:
            # the next layer's codes are on their way now
            deadline = time.monotonic() + 2
            while not SlowCopies.under_way and time.monotonic() < deadline:
                time.sleep(0.0002)
            caught_under_way.append(SlowCopies.under_way)
            if how == "stopped":
                stop.set()
            elif how == "failed":
                raise RuntimeError("in the middle")
            else:
                raise GeneratorExit
        return output

    monkeypatch.setattr(model, "new_session", make)
    monkeypatch.setattr(kvviz.cache.session.CacheSession, "attend", interrupted)
    events = []
    try:
        for event in run(model, asked("disk", 40), stop=stop):
            events.append(event)
    except GeneratorExit:
        assert how == "left"
    monkeypatch.undo()
    assert caught_under_way == [1]
    if how == "stopped":
        assert isinstance(events[-1], RunFinished)
        assert events[-1].reason == "stopped"
    elif how == "failed":
        assert isinstance(events[-1], RunFailed)
        assert "in the middle" in events[-1].message
    ids = [e.token_id for e in events if isinstance(e, TokenGenerated)]
    assert ids == expected[: len(ids)]
    assert 10 < len(ids) < 40
    assert copying_threads() == []
    assert open_files() == files
    assert list(tmp_path.iterdir()) == []
    gc.collect()
    # the log keeps the traceback of a failure, and so an empty session
    left = [session for session in (made() for made in sessions) if session is not None]
    assert left == [] or how == "failed"
    assert [live_bytes(session.buffers()) + session.staging_bytes for session in left] == [0] * len(left)
    assert told(model, asked("disk", 40))[0] == expected


def test_the_folder_is_removed_during_a_run(model, monkeypatch, tmp_path) -> None:
    """What is stored stays readable; more room cannot be made, and that is said."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    expected, files = told(model, asked("disk", 40))[0], open_files()
    events = []
    for event in run(model, asked("disk", 40)):
        events.append(event)
        if isinstance(event, TokenGenerated) and event.step == 3:
            folder.rmdir()
    assert isinstance(events[-1], RunFailed)
    assert "is not there" in events[-1].message
    assert str(folder) in events[-1].message
    ids = [e.token_id for e in events if isinstance(e, TokenGenerated)]
    assert 3 < len(ids) < 40
    assert ids == expected[: len(ids)]
    assert open_files() == files


def test_refused_page_locked_memory_is_a_note_and_no_error(model, monkeypatch) -> None:
    """Without CUDA nothing can be page-locked: asking for it is refused as on a machine that has no more."""
    if torch.cuda.is_available():
        pytest.skip("page-locked memory is given here")
    expected = told(model, asked())[0]
    monkeypatch.setattr(kvviz.cache.pieces, "open_store", lambda place, device: HostStore(pinned=True))
    ids, timelines = told(model, asked())
    assert ids == expected
    assert all("pageable" in timeline.notes for timeline in timelines)


def test_a_disk_that_refuses_before_anything_is_written(model, monkeypatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, "/nowhere/at/all")
    events = list(run(model, asked("disk")))
    assert isinstance(events[-1], RunFailed)
    assert "/nowhere/at/all" in events[-1].message
    assert not any(isinstance(event, TokenGenerated) for event in events)
    assert any(isinstance(event, PrefillProgress) for event in events)
    assert DiskStore.place.value == "disk"


def test_no_span_begins_before_its_step_and_a_saved_run_is_read_again(model) -> None:
    record = RunRecord()
    for event in run(model, asked()):
        record.apply(event)
    known = [timeline for timeline in record.timelines if timeline is not None]
    assert len(known) == 12
    assert min(timeline.start_ms.min() for timeline in known) >= 0
    (plain,) = to_text([record], 1_000_000)
    again = from_text(plain, Allowance(1 << 26))
    for old, new in zip(known, again.timelines, strict=True):
        assert new is not None
        assert np.array_equal(old.start_ms, new.start_ms)
