"""A record is its events; saved and loaded it is the same, and nothing in the file is pickled."""

from __future__ import annotations

import dataclasses
import zipfile

import numpy as np
import pytest
import torch

from kvviz.config import CacheConfig, Middle, Offload, RunConfig
from kvviz.engine import run
from kvviz.errors import KvvizError
from kvviz.quant_config import QuantConfig
from kvviz.record import RunRecord

INT4 = QuantConfig.parse("int4:token:g16:minmax")
STACK = CacheConfig(2, 4, Middle.QUANTIZE, 4, INT4, INT4, offload=Offload.HOST)


@pytest.fixture(scope="module")
def record(tiny) -> RunRecord:
    made = RunRecord()
    assert not made.is_live
    config = RunConfig("a record's prompt, 東京", STACK, "stack", False, 6, chunk_size=9)
    for event in run(tiny(dtype=torch.float32), config):
        made.apply(event)
    return made


def same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(
            same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a)
        )
    return a == b


def test_a_record_grows_with_its_events(record):
    steps = len(record.generated_ids)
    assert record.status in ("length", "eos")
    assert record.label == "stack"
    assert steps >= 1
    for series in (record.logprobs, record.step_ms, record.spans, record.memory, record.tier_mass):
        assert len(series) == steps
    assert [summary.rows for summary in record.head_summary] == [
        len(record.prompt_ids) + n for n in range(steps)
    ]
    assert record.prefill_tokens == len(record.prompt_ids) == len("a record's prompt, 東京".encode())
    assert len(record.labels) == len(record.token_ids) == len(record.prompt_ids) + steps
    assert RunConfig.from_dict(record.config).cache == STACK


def test_save_and_load(record, tmp_path):
    path = tmp_path / "run.npz"
    record.save(path)
    loaded = RunRecord.load(path)
    for field in dataclasses.fields(RunRecord):
        assert same(getattr(record, field.name), getattr(loaded, field.name)), field.name
    with np.load(path, allow_pickle=False) as stored:
        assert all(stored[name].dtype != object for name in stored.files)
    with zipfile.ZipFile(path) as files:
        assert all(name.endswith(".npy") for name in files.namelist())


def test_an_empty_record_survives_too(tmp_path):
    path = tmp_path / "empty.npz"
    RunRecord().save(path)
    assert same(RunRecord.load(path), RunRecord())


def test_another_version_is_refused(record, tmp_path, monkeypatch):
    path = tmp_path / "old.npz"
    with monkeypatch.context() as patch:
        patch.setattr("kvviz.record.RECORD_VERSION", 1)
        record.save(path)
    with pytest.raises(KvvizError) as refusal:
        RunRecord.load(path)
    assert refusal.value.code == "record_version"
