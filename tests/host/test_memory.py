"""The bytes that a request is said to take, against the bytes that are there; and who is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvviz.config import CacheConfig, Middle, Offload, RunConfig
from kvviz.engine import run
from kvviz.errors import KvvizError
from kvviz.events import AttentionRows, TokenGenerated, sum_bytes
from kvviz.host import Memory, MemoryGuard, Need, free_host_bytes, memory
from kvviz.host.memory import cache_need, record_need, run_need
from kvviz.quant_config import QuantConfig
from kvviz.record import RunRecord
from tests.builders import make_facts

STACK = CacheConfig(
    sink_size=2, window_size=24, middle=Middle.QUANTIZE, block_size=16,
    key=QuantConfig.parse("int8:token:g16:absmax"), value=QuantConfig.parse("int4:channel:g16:minmax"),
)  # fmt: skip
CACHES = {
    "full": CacheConfig(),
    "evict": CacheConfig(sink_size=4, window_size=20, middle=Middle.EVICT),
    "quantized": STACK,
    "offloaded": replace(STACK, offload=Offload.HOST),
}


@pytest.mark.parametrize("name", list(CACHES))
def test_no_step_of_a_run_reserves_more_than_was_said(tiny: Callable[..., Any], name: str) -> None:
    model, cache = tiny(), CACHES[name]
    config = RunConfig("the cache of " * 12, cache, use_chat_template=False, max_new_tokens=40, chunk_size=8)
    prompt_tokens = len(model.encode(config.prompt, False))
    need = cache_need(model.facts, cache, prompt_tokens + 40, config.chunk_size)
    reserved = [e.state.memory.reserved for e in run(model, config) if isinstance(e, TokenGenerated)]
    assert reserved
    most = {
        place: max(sum_bytes({place: r.get(place, {})}) for r in reserved) for place in ("device", "host")
    }
    assert most["device"] <= need.device_bytes
    assert most["host"] <= need.host_bytes
    assert need.total_bytes <= 3 * (most["device"] + most["host"]), "a bound, not a fright"


def test_a_record_holds_no_more_than_was_said(tiny: Callable[..., Any]) -> None:
    model = tiny()
    config = RunConfig("x" * 100, use_chat_template=False, max_new_tokens=30)
    record = RunRecord(config=config.to_dict())
    for event in run(model, config):
        record.apply(event)
        assert not isinstance(event, AttentionRows) or event.values.itemsize == 2
    assert record.attention is not None
    held = record.attention.nbytes + sum(array.nbytes for array in (*record.tier_mass, *record.received))
    for s in record.head_summary:
        held += sum(a.nbytes for a in (s.first_mass, s.tier_mass, s.entropy, s.distance))
    said = record_need(model.facts, 130, 30).host_bytes
    assert held <= said <= 1.5 * held


def test_full_precision_grows_with_the_text_and_eviction_does_not() -> None:
    facts = make_facts()
    grown = [cache_need(facts, CACHES["full"], tokens).total_bytes for tokens in (1000, 2000)]
    assert 1.6 < grown[1] / grown[0] < 2.1
    evicted = {cache_need(facts, CACHES["evict"], tokens).total_bytes for tokens in (1000, 100_000)}
    assert len(evicted) == 1


FACTS = make_facts()
MIB = 1 << 20


def guard(host_mib: int, device_mib: int | None = None, keep_mib: int = 10) -> MemoryGuard:
    device = None if device_mib is None else lambda name: device_mib * MIB
    return MemoryGuard(Memory(lambda: host_mib * MIB, device), keep_mib * MIB)


def test_what_does_not_fit_is_refused_with_its_bytes() -> None:
    with pytest.raises(KvvizError) as refused:
        guard(100).check(FACTS, [Need(60 * MIB), Need(0, 40 * MIB)])
    for words in ("100 MiB", "90.0 MiB", "10.0 MiB are kept free"):
        assert words in str(refused.value)


def test_what_fits_exactly_is_let_in() -> None:
    assert guard(100).check(FACTS, [Need(60 * MIB), Need(0, 30 * MIB)]).total_bytes == 90 * MIB


def test_requests_that_start_together_do_not_count_the_same_bytes() -> None:
    shared = guard(100)
    with shared.promised(FACTS, Need(50 * MIB)):
        with pytest.raises(KvvizError), shared.promised(FACTS, Need(50 * MIB)):
            pass
        with shared.promised(FACTS, Need(40 * MIB)):
            pass
    with shared.promised(FACTS, Need(90 * MIB)):
        pass


def test_a_device_and_the_host_are_counted_apart() -> None:
    facts = replace(FACTS, device="cuda:0")
    guard(20, 100).check(facts, [Need(90 * MIB, 10 * MIB)])
    with pytest.raises(KvvizError):
        guard(20, 100).check(facts, [Need(91 * MIB)])
    with pytest.raises(KvvizError):
        guard(20, 100).check(facts, [Need(0, 11 * MIB)])


def test_an_absurd_request_is_refused_and_not_begun() -> None:
    with pytest.raises(KvvizError):
        guard(16_000).check(FACTS, [run_need(FACTS, CacheConfig(), 1000, 10**9)])


def write(folder: Path, **files: str) -> None:
    for name, content in files.items():
        (folder / name.replace("_", ".", 1)).write_text(content)


def test_a_container_may_have_less_than_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    machine = free_host_bytes()
    assert machine > 100 * MIB
    write(tmp_path, memory_max=f"{50 * MIB}\n", memory_current=f"{30 * MIB}\n")
    write(tmp_path, memory_stat=f"anon 5\ninactive_file {8 * MIB}\n")
    assert free_host_bytes() == 28 * MIB
    write(tmp_path, memory_max="max\n")
    assert free_host_bytes() > 100 * MIB
