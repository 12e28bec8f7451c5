"""Bytes: what the ledger says is what the tensors take, what a formula says, and far below 16 bits."""

from __future__ import annotations

import gc
import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kvviz.cache.ledger import live_bytes
from kvviz.cache.sealed import TILE_TOKENS
from kvviz.config import CacheConfig, Middle, Offload
from kvviz.events import ModelFacts, sum_bytes
from kvviz.quant import make_quantizer
from kvviz.quant_config import QuantConfig


def quantizing(key: str, value: str, sinks: int = 4, window: int = 8, block: int = 32, **more) -> CacheConfig:
    return CacheConfig(
        sinks, window, Middle.QUANTIZE, block, QuantConfig.parse(key), QuantConfig.parse(value), **more
    )


FULL_STACK = quantizing(
    "int8:token:g64:absmax", "int4:token:g64:absmax", window=128, block=64, offload=Offload.HOST
)


def tokens(count: int) -> list[int]:
    return torch.randint(0, 256, (count,), generator=torch.Generator().manual_seed(7)).tolist()


def storages(dtypes: set[torch.dtype]) -> dict[int, int]:
    """Every tensor storage that is alive in the process, whoever holds it."""
    gc.collect()
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for thing in gc.get_objects():
            if type(thing) is torch.Tensor and thing.dtype in dtypes:
                found[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
    return found


@pytest.mark.parametrize(
    ("key", "value", "count"),
    [
        ("int8:token:g64:absmax", "int4:token:g64:minmax", 300),
        ("int4:channel:g32:minmax", "int2:token:g32:minmax:m32", 299),
        ("fp8", "none", 150),
        ("int2:tensor:absmax", "int8:head:minmax", 77),
        ("int3:head:absmax+prerotary+outliers1+hadamard", "nf4:tensor+outliers2", 101),
    ],
)
def test_reserved_is_every_live_storage(tiny, key, value, count):
    model = tiny(head_dim=64, dtype=torch.float32)
    kinds = {torch.float32, torch.float16, torch.uint8, torch.uint16}
    session = model.new_session(quantizing(key, value))
    for start in range(0, count, 50):
        model.forward(tokens(count)[start : start + 50], session, last_only=True)
    held = storages(kinds)
    memory = session.memory()
    assert memory.tokens == count
    assert sum_bytes(memory.reserved) == live_bytes(session.buffers())
    session.reset()
    left = storages(kinds)
    freed = {at: size for at, size in held.items() if at not in left}
    assert sum(freed.values()) == sum_bytes(memory.reserved)
    assert sum_bytes(session.memory().reserved) == 0
    assert sum_bytes(session.memory().used) == 0


def side_bytes(spec: str, sealed: int, heads: int, dim: int, block: int, width: int) -> int:
    """One side of one layer by hand: codes plus one scale (and minimum) for each group."""
    if spec == "none":
        return sealed * heads * dim * width
    bits = {"fp8": 8, "nf4": 4}.get(spec[:3]) or int(spec[3])
    numbers = sealed * heads * dim
    if ":token:g" in spec or ":channel:g" in spec:
        groups = numbers // int(spec.split(":g")[1].split("+")[0].split(":")[0])
    elif "head" in spec:
        groups = sealed // block * heads
    else:
        groups = sealed // block
    metadata = (2 if "minmax" in spec else 1) * (4 if "m32" in spec else 2)
    outliers = 0
    if "+outliers" in spec:
        size = numbers // groups
        count = max(1, round(float(spec.split("+outliers")[1].split("+")[0]) * size / 100))
        outliers = groups * count * (width + (1 if size <= 256 else 2))
    return numbers * bits // 8 + groups * metadata + outliers


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("int8:token:g64:absmax", "int4:token:g64:absmax"),
        ("int4:channel:g32:minmax", "int4:token:g32:minmax"),
        ("int2:channel:g32:minmax:m32", "int2:token:g16:minmax"),
        ("fp8", "none"),
        ("fp8:token:g32", "int8:head:minmax"),
        ("int4:tensor:absmax", "int8:head:absmax:m32"),
        ("int3:channel:g32:minmax", "nf4:token:g64"),
        ("int4:token:g64:absmax+prerotary+outliers1", "nf4:channel:g32+outliers10+hadamard"),
        ("int3:head:absmax+hadamard", "int2:tensor:minmax+outliers1"),
    ],
)
@pytest.mark.parametrize("offload", [Offload.NONE, Offload.HOST, Offload.DISK])
def test_used_is_the_formula(tiny, key, value, offload):
    model = tiny(head_dim=64, dtype=torch.float32)
    session = model.new_session(quantizing(key, value, offload=offload))
    model.forward(
        tokens(210), session, last_only=True
    )  # 4 sinks, 198 middle: 6 blocks = 192, 6 exact, 8 window
    memory = session.memory()
    sealed = sum(side_bytes(spec, 192, 2, 64, 32, 4) for spec in (key, value)) * 2
    per_token = 2 * 2 * 2 * 64 * 4  # K and V, layers, KV heads, head_dim, fp32
    place, tier = ("device", "quantized") if offload.is_none else (offload.spec, "offloaded")
    assert sum(memory.used[place][tier].values()) == sealed
    device = memory.used["device"]
    assert {
        name: parts["exact"] for name, parts in device.items() if name in ("sink", "exact", "window")
    } == {
        "sink": 4 * per_token,
        "exact": 6 * per_token,
        "window": 8 * per_token,
    }
    assert memory.used_bytes == sealed + 18 * per_token
    numbers = 2 * 2 * 2 * 64
    assert memory.effective_bits == pytest.approx(8 * sealed / (192 * numbers), rel=1e-12)
    assert memory.cache_bits == pytest.approx(8 * memory.used_bytes / (210 * numbers), rel=1e-12)


@pytest.mark.parametrize("middle", list(Middle))
def test_headroom_is_at_most_an_eighth(tiny, middle):
    model = tiny(head_dim=64, dtype=torch.float32)
    config = quantizing("int4:channel:g32:minmax", "int4:token:g64:minmax", window=40)
    config = config if middle is Middle.QUANTIZE else CacheConfig(4, 40, middle)
    session = model.new_session(config)
    for token in tokens(160):
        model.forward([token], session, last_only=True)
        memory = session.memory()
        assert sum_bytes(memory.used) <= sum_bytes(memory.reserved) <= 1.125 * sum_bytes(memory.used)
    for buffer in session.buffers():
        assert buffer.reserved_bytes <= 1.125 * len(buffer) * buffer.row_bytes


def test_eviction_gives_memory_back(tiny):
    model = tiny(head_dim=64, dtype=torch.float32)
    session = model.new_session(CacheConfig(4, 16, Middle.EVICT))
    model.forward(tokens(200), session, last_only=True)
    assert session.memory().used_bytes == 20 * 2 * 2 * 2 * 64 * 4
    assert session.memory().tokens == 200
    held = []
    session.observer = lambda layer, result, step: held.append(len(session.layers[layer].recent["key"]))
    for token in tokens(3):
        model.forward([token], session, last_only=True)
    assert held == [16] * 6  # the oldest leaves before the newest is read, not after


class LargestTensor(TorchDispatchMode):
    """The largest fresh storage that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[int] = set()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if is_plain(t)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if is_plain(tensor) and tensor.untyped_storage().data_ptr() not in before:
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
        return result


def is_plain(x: object) -> bool:
    return isinstance(x, torch.Tensor)


def test_full_stack_at_4096_tokens(tiny):
    """Under 0.40 of 16 bits with all metadata, and no decode step restores all the sealed tokens at once."""
    model = tiny(head_dim=64, dtype=torch.bfloat16, context=8192)
    session = model.new_session(FULL_STACK)
    ids = tokens(4096)
    for start in range(0, 4096, 512):
        model.forward(ids[start : start + 512], session, last_only=True)
    sealed = session.layers[0].sealed.tokens
    assert sealed == (4095 - 128 + 1 - 4) // 64 * 64 == 3904
    assert sealed > 3 * TILE_TOKENS
    full_16_bit = 2 * 2 * 2 * 64 * 2 * sealed
    used = sum(session.memory().used["host"]["offloaded"].values())
    assert used == 2 * 2 * sealed * ((64 + 2) + (32 + 2))
    assert used < 0.40 * full_16_bit
    assert session.memory().effective_bits == pytest.approx(6.25)
    watch = LargestTensor()
    with watch:
        model.forward([5], session, last_only=True)
    one_side_16_bit = sealed * 2 * 64 * 2
    assert 0 < watch.largest <= TILE_TOKENS * 2 * 64 * 4  # one tile in fp32
    assert watch.largest < 0.6 * one_side_16_bit


@pytest.mark.parametrize(
    ("spec", "per_token"),
    [
        ("int8:token:g64:minmax", 12_240),
        ("int4:token:g64:minmax", 6_480),
        ("int4:token:g32:minmax", 7_200),
        ("int2:token:g32:minmax", 4_320),
    ],
)
def test_bytes_of_the_default_model_s_shape(spec, per_token):
    """30 layers, 3 KV heads, head_dim 64; scale and minimum of 16 bits each."""
    quantizer = make_quantizer(QuantConfig.parse(spec), head_dim=64, block_size=64)
    parts = quantizer.quantize(torch.randn(1, 3, 1024, 64))
    stored = sum(part.numel() * part.element_size() for part in parts.values())
    assert stored * 2 * 30 == per_token * 1024
    if per_token == 6_480:
        assert stored * 2 * 30 == 6_635_520


def facts(n_layers: int, n_kv_heads: int, head_dim: int) -> ModelFacts:
    return ModelFacts(
        "m", "llama", "", "", n_layers, n_kv_heads, n_kv_heads, head_dim, 1, 1, "float16", 2, "cpu", 0
    )


def test_full_precision_formula():
    default, llama = facts(30, 3, 64), facts(32, 32, 128)
    assert default.kv_bytes_per_token(2) == 23_040
    assert default.kv_bytes_per_token(4) == 46_080
    assert default.kv_bytes_per_token(2) * 1024 == 23_592_960
    assert pytest.approx(3.56, abs=0.005) == 23_592_960 / 6_635_520
    assert llama.kv_bytes_per_token(2) * 4196 / 2**30 == pytest.approx(2.05, abs=0.005)
