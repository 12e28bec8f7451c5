"""Offloaded sessions: the same numbers as on the device, wherever blocks lie; faults; RAM under a budget."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings

import kvviz.cache.sealed
from kvviz import engine
from kvviz.cache.ledger import live_bytes
from kvviz.config import CacheConfig, Middle, Offload, OffloadRead, Position, Prefill, RunConfig
from kvviz.errors import KvvizError
from kvviz.events import RunFailed, Tier, TokenGenerated, sum_bytes
from kvviz.offload.stores import FOLDER_VARIABLE
from kvviz.quant_config import QuantConfig
from tests.cache.cases import Case, cases, feed, stored

ROOT = Path(__file__).resolve().parents[2]
INT8 = QuantConfig.parse("int8:token:g16:absmax")


def quantizing(offload: str, **more) -> CacheConfig:
    return CacheConfig(2, 4, Middle.QUANTIZE, 4, INT8, INT8, offload=Offload.parse(offload), **more)


@pytest.fixture(autouse=True, scope="module")
def small_tiles():
    """Tiles of a few tokens, so that capacities fall into the middle of one."""
    patch = pytest.MonkeyPatch()
    patch.setattr(kvviz.cache.sealed, "TILE_TOKENS", 8)
    yield
    patch.undo()


class Shares:
    """Observes: the attention mass of each tier, by layer and step."""

    def __init__(self) -> None:
        self.seen: list[dict[Tier, torch.Tensor]] = []

    def __call__(self, layer, result, step) -> None:
        mass = result.mass()
        assert len(mass) == len(step.parts)
        self.seen.append({part.tier: x for part, x in zip(step.parts, mass, strict=True)})


@given(case=cases(Middle.QUANTIZE, overrides=True))
@settings(max_examples=12)
def test_the_same_bits_wherever_blocks_lie(tiny, case: Case):
    """Logits, codes, and the shares of tiers that do not change."""
    model = tiny(case.family, n_kv_heads=case.kv_heads)
    near = dataclasses.replace(case.config, offload=Offload.NONE)
    for lengths in case.feedings:
        plain, moved = model.new_session(near), model.new_session(case.config)
        plain.observer, moved.observer = Shares(), Shares()
        assert torch.equal(feed(model, plain, case.ids, lengths), feed(model, moved, case.ids, lengths))
        expected, found = stored(plain), stored(moved)
        assert expected.keys() == found.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected)
        for left, right in zip(plain.observer.seen, moved.observer.seen, strict=True):
            none = torch.zeros(())
            sealed = right.get(Tier.QUANTIZED, none) + right.get(Tier.OFFLOADED, none)
            assert torch.all((sealed - left.get(Tier.QUANTIZED, none)).abs() < 1e-12)
            for tier in (Tier.SINK, Tier.EXACT, Tier.WINDOW):
                assert torch.equal(left.get(tier, none), right.get(tier, none))


@given(case=cases(Middle.QUANTIZE, overrides=True))
@settings(max_examples=12)
def test_computed_where_it_lives_is_the_same_to_rounding(tiny, case: Case):
    """Output and log-sum-exp of the host's part, merged: logits, and the share of every tier."""
    model = tiny(case.family, n_kv_heads=case.kv_heads)
    apart = dataclasses.replace(case.config, offload_read=OffloadRead.ON_HOST)
    for lengths in case.feedings:
        plain, moved = model.new_session(case.config), model.new_session(apart)
        plain.observer, moved.observer = Shares(), Shares()
        expected, found = (feed(model, session, case.ids, lengths) for session in (plain, moved))
        assert (found - expected).abs().max() < 1e-9
        assert moved.staging_bytes == 0
        for left, right in zip(plain.observer.seen, moved.observer.seen, strict=True):
            assert left.keys() == right.keys()
            assert all((left[tier] - right[tier]).abs().max() < 1e-9 for tier in left)


def test_buffers_for_what_is_on_its_way_are_counted(tiny):
    model = tiny()
    session = model.new_session(quantizing("device:8t,host:12t,disk"))
    feed(model, session, tuple(range(60)), [7, 23, *[1] * 30])
    memory = session.memory()
    assert memory.reserved["device"]["offloaded"] == {"staging": session.staging_bytes}
    assert sum_bytes(memory.reserved) == live_bytes(session.buffers()) + session.staging_bytes
    assert session.staging_bytes > 0
    session.reset()
    assert session.staging_bytes == 0


def test_shares_of_a_split_are_those_of_its_tokens(tiny):
    """Each tier's share is the sum of its tokens' weights."""
    model, ids = tiny(), tuple(range(60))
    session = model.new_session(quantizing("device:12t,host"))
    checked = 0

    def check(layer, result, step) -> None:
        nonlocal checked
        by_token = torch.zeros(step.stop, dtype=torch.float64)
        for start, weights in result.weights():
            by_token[start : start + weights.shape[-1]] += weights[0, :, -1].sum(0)
        for part, mass in zip(step.parts, result.mass(), strict=True):
            at = slice(part.low[-1], part.high[-1])
            assert by_token[at].sum() == pytest.approx(float(mass[0, :, -1].sum()), abs=1e-12)
            checked += part.tier is Tier.QUANTIZED and part.stop == 14

    session.observer = check
    feed(model, session, ids, [7] * 4 + [1] * 32)
    assert checked > 20
    tiers = {span.tier: span.stop - span.start for span in session.spans()}
    assert tiers == {Tier.SINK: 2, Tier.QUANTIZED: 12, Tier.OFFLOADED: 40, Tier.EXACT: 2, Tier.WINDOW: 4}


def test_places_are_filled_in_order_up_to_their_capacity(tiny):
    model = tiny()
    session = model.new_session(quantizing("device:9t,host:12t,disk"))
    model.forward(list(range(60)), session, last_only=True)
    used, reserved = session.memory().used, session.memory().reserved
    per_token = 2 * 2 * 2 * (16 + 2)  # layers, sides, KV heads, codes and a scale
    assert sum(used["device"]["quantized"].values()) == 8 * per_token
    assert sum(used["host"]["offloaded"].values()) == 12 * per_token
    assert sum(used["disk"]["offloaded"].values()) == 32 * per_token
    assert reserved["device"]["quantized"] == used["device"]["quantized"]  # no headroom beyond a capacity
    assert reserved["host"]["offloaded"] == used["host"]["offloaded"]
    assert session.memory().effective_bits == pytest.approx(9.0)


def test_a_capacity_in_bytes_is_kept(tiny):
    model = tiny()
    block = 4 * 2 * 2 * 2 * (16 + 2)
    session = model.new_session(quantizing(f"host:{3 * block + block // 2}B,disk"))
    model.forward(list(range(60)), session, last_only=True)
    assert sum_bytes({"host": session.memory().reserved["host"]}) == 3 * block
    assert session.memory().used["disk"]


def test_when_every_place_is_full_the_run_ends_with_a_sentence(tiny):
    model = tiny()
    config = RunConfig("a b c d e f g", quantizing("host:8t"), max_new_tokens=40, use_chat_template=False)
    events = list(engine.run(model, config))
    assert isinstance(events[-1], RunFailed)
    assert "Every place for sealed blocks is full" in events[-1].message
    plain = dataclasses.replace(config, cache=quantizing("none"))
    expected = [e.token_id for e in engine.run(model, plain) if isinstance(e, TokenGenerated)]
    told = [event.token_id for event in events if isinstance(event, TokenGenerated)]
    assert 0 < len(told) < 40
    assert told == expected[: len(told)]


@pytest.mark.parametrize("fails_at", [1, 5, 12])
def test_a_disk_that_fills_in_the_middle(tiny, monkeypatch, tmp_path, fails_at):
    """The text so far is right, the reason is told, no file and no descriptor is left."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    model, plain, calls = tiny(), os.posix_fallocate, 0

    def reserve(*given: int) -> None:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        plain(*given)

    config = RunConfig("a b c d e f g", quantizing("disk"), max_new_tokens=24, use_chat_template=False)
    expected = [e.token_id for e in engine.run(model, config) if isinstance(e, TokenGenerated)]
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "posix_fallocate", reserve)
    events = list(engine.run(model, config))
    assert isinstance(events[-1], RunFailed)
    assert str(tmp_path) in events[-1].message
    told = [event.token_id for event in events if isinstance(event, TokenGenerated)]
    assert told == expected[: len(told)]
    assert len(told) < len(expected) == 24
    assert len(os.listdir("/proc/self/fd")) == before
    assert list(tmp_path.iterdir()) == []


def test_a_broken_step_is_never_continued(tiny):
    model = tiny()
    session = model.new_session(quantizing("host:8t"))
    with pytest.raises(KvvizError, match="Every place"):
        feed(model, session, tuple(range(40)), [5] * 8)
    with pytest.raises(KvvizError) as caught:
        model.forward([1], session, last_only=True)
    assert caught.value.code == "step_unfinished"
    session.reset()
    fresh = model.new_session(quantizing("none"))
    assert torch.equal(
        model.forward([1, 2], session, last_only=True), model.forward([1, 2], fresh, last_only=True)
    )


@pytest.mark.parametrize("reason", ["finished", "stopped", "failed", "left"])
def test_every_way_out_gives_disk_and_descriptors_back(tiny, monkeypatch, tmp_path, reason):
    import threading

    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    model, stop = tiny(), threading.Event()
    config = RunConfig("a b c d", quantizing("disk"), max_new_tokens=30, use_chat_template=False)
    before, free = len(os.listdir("/proc/self/fd")), os.statvfs(tmp_path).f_bfree
    events = engine.run(model, config, stop=stop)
    for count, event in enumerate(events):
        if isinstance(event, TokenGenerated) and event.step == 20:
            assert len(os.listdir("/proc/self/fd")) > before
            if reason == "stopped":
                stop.set()
            elif reason == "failed":
                monkeypatch.setattr(model, "_fed", None)
            elif reason == "left":
                events.close()  # the page's session went away
                break
        assert count < 200
    assert len(os.listdir("/proc/self/fd")) == before
    assert list(tmp_path.iterdir()) == []
    del free


BUDGET = """
import resource, sys, torch
from kvviz.cache import CacheSession
from kvviz.config import CacheConfig, Middle, Offload
from kvviz.errors import KvvizError

torch.set_num_threads(1)
LAYERS, HEADS, DIM, CHUNK, CHUNKS = 16, 1, 64, 128, 64

def vm(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))

def angles(positions):
    return torch.ones(len(positions), DIM), torch.zeros(len(positions), DIM)

def read(offload, budget):
    config = CacheConfig(4, 64, Middle.QUANTIZE, 64, offload=Offload.parse(offload))
    session = CacheSession(config, n_layers=LAYERS, n_heads=HEADS, n_kv_heads=HEADS, head_dim=DIM,
                           dtype=torch.float32, device=torch.device("cpu"), rotary=angles)
    make = torch.Generator().manual_seed(0)
    base, total = vm("VmRSS"), torch.zeros(())
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # VmHWM begins anew
    # the process's data may grow by the budget and no more; a shared mapping of a file is not data
    resource.setrlimit(resource.RLIMIT_DATA, (vm("VmData") + budget, resource.RLIM_INFINITY))
    with torch.inference_mode():
        for chunk in range(CHUNKS):
            session.begin(CHUNK)
            for layer in range(LAYERS):
                keys, values = torch.randn(2, 1, HEADS, CHUNK, DIM, generator=make)
                session.append(layer, keys, values)
                if chunk % 16 == 15:
                    total += session.attend(layer, keys[:, :, -1:].expand_as(keys), 0.125).square().sum()
                else:
                    session.layers[layer].settle(session._current().keep_from)
            session.finish()
    used = sum(sum(p.values()) for t in session.memory().used.values() for p in t.values())
    return used, vm("VmHWM") - base, float(total)

for given in sys.argv[1:]:
    offload, mib = given.split("/")
    try:
        print("held", *read(offload, int(mib) << 20))
    except (KvvizError, MemoryError, RuntimeError) as error:
        print("refused", type(error).__name__)
"""


def test_a_context_larger_than_a_budget_of_ram(tmp_path):
    """67 MB of keys and values under 32 MiB of RAM, enforced by the system: only the disk holds them."""
    variables = {FOLDER_VARIABLE: str(tmp_path), "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", BUDGET, "host/32", "disk/32", "host/1024"],
        cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    refused, disk, host = (line.split() for line in done.stdout.splitlines())
    assert refused[0] == "refused"
    assert (disk[0], host[0]) == ("held", "held")
    assert int(disk[1]) == int(host[1]) > 65_000_000
    assert int(disk[2]) < 32 << 20  # the most that was resident, mapped pages included
    assert int(host[2]) > 2 * int(disk[2])
    assert disk[3] == host[3]  # to the last bit
    assert list(tmp_path.iterdir()) == []


@given(case=cases(Middle.QUANTIZE, position=Position.ORIGINAL, prefill=Prefill.EXACT))
@settings(max_examples=10)
def test_an_exact_prompt_is_offloaded_as_well(tiny, case: Case):
    model = tiny(case.family, n_kv_heads=case.kv_heads)
    logits = []
    for offload in (Offload.NONE, case.config.offload):
        session = model.new_session(dataclasses.replace(case.config, offload=offload))
        session.begin_prompt()
        rows = [feed(model, session, case.ids[: case.prompt], [case.prompt])]
        session.end_prompt()
        rest = case.ids[case.prompt :]
        logits.append(torch.cat([*rows, feed(model, session, rest, [1] * len(rest))] if rest else rows))
    assert torch.equal(*logits)
