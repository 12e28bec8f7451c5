"""Faults that people reported of caches elsewhere, as inputs with their right answers."""

from __future__ import annotations

import copy

import pytest
import torch

from kvviz.config import CacheConfig, Middle, Offload, Position, Prefill
from kvviz.errors import ConfigError, KvvizError
from kvviz.events import Tier
from kvviz.quant_config import QuantConfig
from tests.oracles.model_oracle import Rule, read_whole

INT4 = QuantConfig.parse("int4:token:g16:minmax")
KIVI = QuantConfig.parse("int2:channel:g32:minmax")


def tokens(count: int, seed: int = 1) -> list[int]:
    return torch.randint(0, 256, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def seen_columns(session) -> list[tuple[int, list[int]]]:
    """Row and the positions it gave weight to, from layer 0 of what follows."""
    found: list[tuple[int, list[int]]] = []

    def watch(layer, result, step):
        if layer:
            return
        full = torch.zeros(step.stop - step.first, step.stop)
        for start, weights in result.weights():
            full[:, start : start + weights.shape[-1]] += weights[0].sum(0)
        for r, row in enumerate(range(step.first, step.stop)):
            found.append((row, torch.nonzero(full[r])[:, 0].tolist()))

    session.observer = watch
    return found


# -- quantized caches ----------------------------------------------------------------------------


@pytest.mark.parametrize("prefill", list(Prefill))
def test_the_newest_tokens_stay_bit_exact(tiny, prefill):
    model, ids = tiny(), tokens(200)
    config = CacheConfig(0, 128, Middle.QUANTIZE, 16, INT4, INT4, prefill=prefill)
    _, oracle = read_whole(model.network, ids, Rule(0, 128, "quantize", 16, INT4.spec, INT4.spec))
    for chunk in (200, 64):
        session = model.new_session(config)
        taken = []
        keep = session.append

        def append(layer, keys, values, keep=keep, taken=taken):
            taken.append((layer, keys.clone(), values.clone()))
            keep(layer, keys, values)

        session.append = append
        session.begin_prompt()
        for start in range(0, 200, chunk):
            model.forward(ids[start : start + chunk], session, last_only=True)
        session.end_prompt()
        assert session.spans()[-1] == (Tier.WINDOW, 72, 200)
        for index, layer in enumerate(session.layers):
            for n, side in enumerate(("key", "value"), 1):
                fed = torch.cat([t[n] for t in taken if t[0] == index], dim=2)
                assert torch.equal(layer.recent[side].view()[:, :, -128:], fed[:, :, -128:])
        if prefill is Prefill.STREAMED:
            newest = session.layers[1].recent["key"].view()[0, :, -128:]
            assert (newest - oracle.keys[1][:, -128:]).abs().max() < 1e-9


def test_a_text_inside_the_window_is_not_quantized(tiny):
    model, ids = tiny(), tokens(100)
    config = CacheConfig(0, 128, Middle.QUANTIZE, 16, INT4, INT4)
    base, tested = model.new_session(CacheConfig()), model.new_session(config)
    for session in (base, tested):
        model.forward(ids, session, last_only=True)
    for token in tokens(28, 2):
        expected = model.forward([token], base, last_only=True)
        logits = model.forward([token], tested, last_only=True)
        assert (logits - expected).abs().max() < 1e-9
        assert logits.argmax() == expected.argmax()
    error = tested.seal_error()
    assert error.sealed_tokens == 0
    assert error.key_error.sum() == error.value_error.sum() == 0.0


def test_settings_survive_runs_and_models(tiny):
    config = CacheConfig(2, 4, Middle.QUANTIZE, 8, INT4, INT4, offload=Offload.HOST)
    before = copy.deepcopy(config)
    small, large = tiny(), tiny(n_layers=3)
    for model in (small, large, small):
        session = model.new_session(config)
        model.forward(tokens(40), session, last_only=True)
        assert len(session.layers) == model.facts.n_layers
        assert session.config is config
    assert config == before


def test_more_than_one_sequence_is_refused(tiny):
    model = tiny()
    session = model.new_session(CacheConfig())
    session.begin(3)
    pair = torch.zeros(2, 2, 3, 16, dtype=torch.float64)
    with pytest.raises(KvvizError) as refusal:
        session.append(0, pair, pair)
    assert refusal.value.code == "batch_one"


def test_crop(tiny):
    model = tiny()
    session = model.new_session(CacheConfig())
    for cut in (0, 3 - 5):
        model.forward(tokens(3), session, last_only=True)
        session.crop(cut)
        assert session.seen_tokens == 0
        assert session.spans() == ()
        assert session.memory().used_bytes == 0
    model.forward(tokens(3), session, last_only=True)
    session.crop(10)
    assert session.seen_tokens == 3


@pytest.mark.parametrize("cut", [1, 3, 6, 20])
def test_crop_leaves_no_stale_token(tiny, cut):
    model, first, second = tiny(), tokens(21), tokens(15, 9)
    session = model.new_session(CacheConfig(4, 6, Middle.KEEP))
    model.forward(first, session, last_only=True)
    session.crop(cut)
    got = model.forward(second, session, last_only=False)
    expected, _ = read_whole(model.network, first[:cut] + second, Rule())
    assert (got - expected[cut:]).abs().max() < 1e-9


def test_crop_into_sealed_or_evicted_tokens_is_refused(tiny):
    model = tiny()
    for config in (CacheConfig(2, 4, Middle.EVICT), CacheConfig(2, 4, Middle.QUANTIZE, 8, INT4, INT4)):
        session = model.new_session(config)
        model.forward(tokens(30), session, last_only=True)
        for cut in (1, 5, 12):
            with pytest.raises(KvvizError) as refusal:
                session.crop(cut)
            assert refusal.value.code == "crop"
            assert session.seen_tokens == 30
    model.forward(tokens(3), session, last_only=True)
    session.crop(31)  # 33 and 31 tokens have the same 24 sealed ones: only exact values go
    assert session.seen_tokens == 31
    assert session.spans() == model_spans(model, session.config, 31)


def model_spans(model, config, count):
    session = model.new_session(config)
    model.forward(tokens(count), session, last_only=True)
    return session.spans()


@pytest.mark.parametrize("config", [
    CacheConfig(2, 4, Middle.KEEP),
    CacheConfig(2, 4, Middle.EVICT, position=Position.IN_CACHE),
    CacheConfig(2, 4, Middle.QUANTIZE, 8, INT4, INT4, prefill=Prefill.EXACT),
])  # fmt: skip
def test_reset_leaves_no_stale_token(tiny, config):
    model = tiny()
    used, fresh = model.new_session(config), model.new_session(config)
    used.begin_prompt()
    model.forward(tokens(30), used, last_only=True)
    used.reset()
    assert used.memory().used_bytes == 0
    ids = tokens(25, 4)
    assert torch.equal(model.forward(ids, used, last_only=False), model.forward(ids, fresh, last_only=False))
    assert used.spans() == fresh.spans()


# -- sinks, positions, several turns --------------------------------------------------------------


@pytest.mark.parametrize("chunks", [[1] * 21, [3] * 7, [21]])
def test_kept_tokens_and_their_places(tiny, chunks):
    model, ids = tiny(), tokens(21)
    config = CacheConfig(4, 8, Middle.EVICT, position=Position.IN_CACHE)
    session = model.new_session(config)
    seen = seen_columns(session)
    start = 0
    for chunk in chunks:
        logits = model.forward(ids[start : start + chunk], session, last_only=True)
        start += chunk
    assert seen[-1] == (20, [0, 1, 2, 3, *range(13, 21)])
    assert session.plan.cache_position(20) == 11
    kept = [(s.tier, s.start, s.stop) for s in session.spans()]
    assert kept == [(Tier.SINK, 0, 4), (Tier.EVICTED, 4, 13), (Tier.WINDOW, 13, 21)]
    assert session.layers[0].recent_start == 13
    assert len(session.layers[0].recent["key"]) == 8
    expected, _ = read_whole(model.network, ids, Rule(4, 8, "evict", in_cache=True))
    assert (logits[-1] - expected[-1]).abs().max() < 1e-4


@pytest.mark.parametrize("chunk", [40, 7, 1])
def test_late_prompt_rows_still_see_the_sinks(tiny, chunk):
    model, ids = tiny(), tokens(40)
    session = model.new_session(CacheConfig(4, 6, Middle.EVICT))
    seen = seen_columns(session)
    for start in range(0, 40, chunk):
        model.forward(ids[start : start + chunk], session, last_only=True)
    assert [row for row, _ in seen] == list(range(40))
    for row, columns in seen:
        expected = list(range(row + 1)) if row < 10 else [0, 1, 2, 3, *range(row - 5, row + 1)]
        assert columns == expected


def test_a_second_turn_continues_the_first(tiny):
    """Reading on after an answer equals reading it all at once."""
    model, first, second = tiny(), tokens(23), tokens(19, 5)
    config = CacheConfig(3, 5, Middle.QUANTIZE, 4, INT4, INT4)
    session = model.new_session(config)
    for part in (first, second):
        session.begin_prompt()
        rows = model.forward(part, session, last_only=False)
        session.end_prompt()
    rule = Rule(3, 5, "quantize", 4, INT4.spec, INT4.spec)
    expected, _ = read_whole(model.network, first + second, rule)
    assert (rows - expected[23:]).abs().max() < 1e-9
    assert session.spans()[-1].stop == 42


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "phi3"])
def test_kept_length_never_passes_sinks_and_window(tiny, family):
    model = tiny(family, dtype=torch.float32)
    session = model.new_session(CacheConfig(4, 12, Middle.EVICT, position=Position.IN_CACHE))
    for token in tokens(56):
        logits = model.forward([token], session, last_only=True)
        assert bool(logits.isfinite().all())
        for layer in session.layers:
            assert len(layer.sinks["key"]) + len(layer.recent["key"]) == min(16, session.seen_tokens)
    assert session.plan.cache_position(55) == 15
    assert session.plan.cache_position(50) == 15


# -- sliding window --------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [10, 3, 1])
def test_window_counts_the_row_itself(tiny, chunk):
    model, ids = tiny(), tokens(10)
    session = model.new_session(CacheConfig(0, 4, Middle.EVICT))
    seen = seen_columns(session)
    for start in range(0, 10, chunk):
        model.forward(ids[start : start + chunk], session, last_only=True)
    assert [len(columns) for _, columns in seen] == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]
    assert seen[-1][1] == [6, 7, 8, 9]


@pytest.mark.parametrize("window", [0, -1, None, True, 4.0])
def test_no_window_is_refused(window):
    with pytest.raises(ConfigError) as refusal:
        CacheConfig(window_size=window)
    assert refusal.value.code == "int_minimum"
    assert "window_size" in str(refusal.value)


# -- grouping of decode tokens, dtypes ---------------------------------------------------------------


def test_single_steps_seal_whole_groups_only(tiny):
    model, ids = tiny(head_dim=64, dtype=torch.float32), tokens(200)
    config = CacheConfig(0, 32, Middle.QUANTIZE, 32, KIVI, KIVI)
    streamed, whole = model.new_session(config), model.new_session(config)
    model.forward(ids[:32], streamed, last_only=True)
    for token in ids[32:]:
        model.forward([token], streamed, last_only=True)
        residual = len(streamed.layers[0].recent["key"])
        assert residual <= 32 + 32 - 1
    model.forward(ids, whole, last_only=True)
    for session in (streamed, whole):
        assert session.layers[0].sealed.tokens == 160
        assert len(session.layers[0].recent["key"]) == 40
        assert session.seal_error().sealed_tokens == 160
    error, signal = streamed.seal_error().key_error.sum(), streamed.seal_error().key_signal.sum()
    assert 0.2 < (error / signal) ** 0.5 < 0.6


def test_residual_128_over_300_steps(tiny):
    model = tiny(dtype=torch.float32)
    session = model.new_session(CacheConfig(0, 128, Middle.QUANTIZE, 32, KIVI, KIVI))
    for token in tokens(300):
        model.forward([token], session, last_only=True)
        assert len(session.layers[0].recent["key"]) <= 128 + 32 - 1
    assert session.layers[0].sealed.tokens == (300 - 128) // 32 * 32 == 160


def test_200_evictions_do_not_change_a_key_twice(tiny):
    """Sinks with packed neighbours: after 200 more steps the first sealed codes are what they were."""
    model = tiny(dtype=torch.float32)
    session = model.new_session(
        CacheConfig(4, 8, Middle.QUANTIZE, 16, INT4, INT4, position=Position.IN_CACHE)
    )
    model.forward(tokens(60), session, last_only=True)
    before = session.layers[0].sealed.sides["key"].parts()["codes"].clone()
    for token in tokens(200, 3):
        model.forward([token], session, last_only=True)
    assert torch.equal(
        session.layers[0].sealed.sides["key"].parts()["codes"][:, :, : before.shape[2]], before
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("spec", ["none", "fp8", "int8:token:g16:absmax", "int2:channel:g8:minmax"])
def test_every_dtype_runs(tiny, dtype, spec):
    model = tiny(dtype=dtype)
    quant = QuantConfig.parse(spec)
    for config in (
        CacheConfig(2, 4, Middle.QUANTIZE, 8, quant, quant),
        CacheConfig(2, 4, Middle.EVICT, position=Position.IN_CACHE),
    ):
        session = model.new_session(config)
        for start in range(0, 40, 13):
            logits = model.forward(tokens(40)[start : start + 13], session, last_only=False)
            assert bool(logits.isfinite().all())
        tiles = (
            [tile for tile in session.layers[0].sealed.tiles(dtype)]
            if session.layers[0].sealed.tokens
            else []
        )
        for tile in tiles:
            assert tile.keys.dtype is tile.values.dtype is dtype
        for buffer in session.layers[0].recent.values():
            assert buffer.view().dtype is dtype


def test_grouped_queries_of_an_unusual_shape(tiny):
    model, ids = tiny("qwen3", n_heads=4, n_kv_heads=2, head_dim=24, hidden=32), tokens(30)
    int8 = QuantConfig.parse("int8:token:g24:absmax")
    session = model.new_session(CacheConfig(2, 4, Middle.QUANTIZE, 8, int8, int8))
    got = model.forward(ids, session, last_only=False)
    assert session.layers[0].sinks["key"].view().shape == (1, 2, 2, 24)
    expected, _ = read_whole(model.network, ids, Rule(2, 4, "quantize", 8, int8.spec, int8.spec))
    assert (got - expected).abs().max() < 1e-9
