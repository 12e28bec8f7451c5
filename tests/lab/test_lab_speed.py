"""Times of ours and of the library's: who takes part, what is counted, and how ratios come about."""

from __future__ import annotations

import statistics
import time

import pytest
import torch

from kvviz import lab
from kvviz.lab import contestants as entries
from kvviz.lab.speed import CONTEXTS, Watch, copy_gb_per_second

SMALL = {"contexts": ["1024"], "caches": ["dynamic", "full", "sinks-window", "k8v4"], "rounds": 3}


@pytest.fixture(scope="module")
def done(tiny):
    model = tiny("llama", context=2048, head_dim=64)
    *progress, result = lab.perform(model, "speed", SMALL)
    return model, progress, result


def test_every_step_is_counted_and_every_cache_holds_what_it_should(done):
    model, progress, result = done
    assert progress[-1].done == progress[-1].total
    main = result.tables["speed"]
    facts = model.facts
    per_token = 2 * facts.n_layers * facts.n_kv_heads * facts.head_dim * facts.dtype_bytes
    held = dict(zip(main.column("speed_cache"), main.column("held_bytes"), strict=True))
    assert held["transformers DynamicCache"] == held["full precision"] == 1024 * per_token
    assert held["sinks + window"] == 132 * per_token
    assert held["K8V4"] < 0.5 * held["full precision"]
    assert main.column("context") == [1024] * 4


def test_ratios_are_those_of_the_medians(done):
    _, _, result = done
    main, times = result.tables["speed"], result.arrays["decode_ms_1024"]
    medians = [statistics.median(row) for row in times.tolist()]
    assert times.shape == (4, 3)
    assert main.column("decode_ms") == medians
    assert main.column("decode_to_library") == [m / medians[0] for m in medians]
    assert main.column("decode_to_full") == [m / medians[1] for m in medians]
    for low, mid, high in zip(
        main.column("decode_low_ms"), medians, main.column("decode_high_ms"), strict=True
    ):
        assert low <= mid <= high


def test_the_library_copies_its_cache_each_step_and_ours_does_not(done):
    model, _, result = done
    main = result.tables["speed"]
    facts = model.facts
    layer_bytes = 2 * 1024 * facts.n_kv_heads * facts.head_dim * facts.dtype_bytes
    peak = dict(zip(main.column("speed_cache"), main.column("transient_bytes"), strict=True))
    assert peak["transformers DynamicCache"] > layer_bytes > peak["full precision"] > 0


def test_everyone_reads_in_the_same_chunks_and_the_library_at_once_too(tiny, monkeypatch):
    fed: dict[str, list[int]] = {}

    class Fed:
        def __init__(self, reading, name):
            self._reading, self._name = reading, name

        def feed(self, ids):
            fed.setdefault(self._name, []).append(len(ids))
            return self._reading.feed(ids)

        def __getattr__(self, name):
            return getattr(self._reading, name)

    own = entries.Contestant.reading
    monkeypatch.setattr(entries.Contestant, "reading", lambda one, model: Fed(own(one, model), one.name))
    *_, last, result = lab.perform(tiny("llama", context=2048, head_dim=64), "speed", SMALL)
    prompt, steps = 1024 - 8, [1] * 8
    chunks = [entries.CHUNK_TOKENS, prompt - entries.CHUNK_TOKENS]
    assert fed["full"] == fed["k8v4"] == fed["sinks-window"] == chunks + steps
    assert fed["dynamic"] == [*chunks, prompt, *steps]
    assert last.done == last.total == sum(map(sum, fed.values()))
    main = result.tables["speed"]
    chunked, at_once = main.column("prefill_ms"), main.column("at_once_ms")
    assert at_once[0] > 0
    assert at_once[1:] == [None] * 3
    assert main.column("prefill_to_library") == [ms / chunked[0] for ms in chunked]
    assert main.column("prefill_to_at_once") == [ms / at_once[0] for ms in chunked]


def test_without_a_base_there_is_no_ratio(tiny):
    model = tiny("llama", context=2048, head_dim=64)
    *_, result = lab.perform(model, "speed", SMALL | {"caches": ["sinks-window"]})
    main = result.tables["speed"]
    assert main.column("decode_to_library") == main.column("prefill_to_library") == [None]
    assert main.column("prefill_to_at_once") == main.column("at_once_ms") == [None]


def test_missing_packages_are_named_and_left_out(monkeypatch):
    monkeypatch.setattr(entries, "is_installed", lambda name: name == "dynamic")
    chosen, missing = entries.contestants(["dynamic", "full", "quanto", "hqq"])
    assert [one.name for one in chosen] == ["dynamic", "full"]
    assert missing == ["quanto", "hqq"]


def test_names_and_labels_agree():
    chosen, missing = entries.contestants(entries.NAMES)
    assert len({one.label for one in chosen}) == len(chosen) == len(entries.NAMES) - len(missing)
    assert all(int(context) > 0 for context in CONTEXTS)


def test_the_watch_tells_time_and_the_highest_water():
    watch = Watch(torch.device("cpu"))
    assert 20 <= watch.ms(lambda: time.sleep(0.02)) < 2000
    mib = 1 << 20

    def act() -> None:
        one = torch.empty(2 * mib, dtype=torch.uint8)
        del one
        two = torch.empty(3 * mib, dtype=torch.uint8)
        three = torch.empty(mib, dtype=torch.uint8)
        del two, three

    assert watch.transient_bytes(act) == 4 * mib


def test_the_copy_rate_is_a_rate():
    assert 0.05 < copy_gb_per_second(torch.device("cpu")) < 10_000
