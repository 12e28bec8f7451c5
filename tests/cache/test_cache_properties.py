"""The cache against a masked full-matrix oracle, over random small configurations, whatever the feeding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz.cache.sealed
from kvviz.attention import Attention
from kvviz.cache.plan import StepPlan
from kvviz.config import Middle, Position, Prefill
from kvviz.events import Tier
from tests.cache.cases import Case, cases, feed, stored
from tests.oracles.angles import exact_angles
from tests.oracles.model_oracle import OracleRun, read_whole
from tests.oracles.quant_oracle import unpack_bytes

EXACT = 1e-9


@pytest.fixture(autouse=True, scope="module")
def small_tiles():
    """Tiles of a few tokens, so that short texts have several of them too."""
    patch = pytest.MonkeyPatch()
    patch.setattr(kvviz.cache.sealed, "TILE_TOKENS", 8)
    yield
    patch.undo()


def check_feedings(model, case: Case, tolerance: float) -> OracleRun:
    """Every feeding gives the oracle's logits and the same stored bytes."""
    expected, oracle = read_whole(model.network, list(case.ids), case.rule)
    seen = []
    for lengths in case.feedings:
        session = model.new_session(case.config)
        logits = feed(model, session, case.ids, lengths)
        assert (logits - expected).abs().max() <= tolerance
        seen.append(stored(session))
        check_codes(session, oracle, case)
    for other in seen[1:]:
        assert other.keys() == seen[0].keys()
        for key, tensor in other.items():
            if key[2] in ("exact", "outliers"):
                assert (tensor - seen[0][key]).abs().max() <= tolerance
            else:
                assert torch.equal(tensor, seen[0][key])
    return oracle


def check_codes(session, oracle: OracleRun, case: Case) -> None:
    """Integer codes are the oracle's, code by code; restored values agree for every spec."""
    for index, layer in enumerate(session.layers):
        assert layer.sealed.tokens == oracle.sealed
        if not oracle.sealed:
            continue
        for side, spec, coded in zip(
            ("key", "value"),
            case.rule.specs(index),
            (oracle.key_codes[index], oracle.value_codes[index]),
            strict=True,
        ):
            store = layer.sealed.sides[side]
            if spec.startswith(("int", "nf4")):
                meant = True if coded.outliers is None else ~coded.outliers
                assert np.all((integer_codes(store, spec) == coded.codes) | ~np.bool_(meant))
            restored = store.read(0, oracle.sealed, torch.device("cpu"), torch.float64)
            assert np.abs(restored[0].numpy() - coded.restored).max() <= EXACT


def integer_codes(store, spec: str) -> np.ndarray:
    bits = 4 if spec.startswith("nf4") else int(spec[3])
    packed = store.parts()["codes"][0].numpy()
    codes = unpack_bytes(packed, bits, 16)
    return codes - (2 ** (bits - 1) - 1) if "absmax" in spec else codes


@given(case=cases(Middle.KEEP))
@settings(max_examples=8)
def test_keep_is_full_attention(tiny, case):
    with exact_angles(tiny(case.family, n_kv_heads=case.kv_heads).network):
        check_feedings(tiny(case.family, n_kv_heads=case.kv_heads), case, EXACT)


@given(case=cases(Middle.EVICT, position=Position.ORIGINAL))
@settings(max_examples=15)
def test_evict_sees_sinks_and_window(tiny, case):
    check_feedings(tiny(case.family, n_kv_heads=case.kv_heads), case, EXACT)


@given(case=cases(Middle.EVICT, position=Position.IN_CACHE))
@settings(max_examples=15)
def test_evict_counts_positions_inside_the_cache(tiny, case):
    model = tiny(case.family, n_kv_heads=case.kv_heads)
    with exact_angles(model.network):
        check_feedings(model, case, EXACT)


@given(case=cases(Middle.EVICT, position=Position.IN_CACHE))
@settings(max_examples=6)
def test_evict_in_cache_with_the_library_s_own_angles(tiny, case):
    # The library's cosines and sines are fp32 (about 6e-8 each), and this network magnifies by some hundreds.
    check_feedings(tiny(case.family, n_kv_heads=case.kv_heads), case, 1e-4)


@given(case=cases(Middle.QUANTIZE))
@settings(max_examples=30)
def test_quantize_reads_sealed_blocks_through_their_codes(tiny, case):
    model = tiny(case.family, n_kv_heads=case.kv_heads)
    with exact_angles(model.network):
        check_feedings(model, case, EXACT)


@given(case=cases(Middle.QUANTIZE, position=Position.ORIGINAL, overrides=True))
@settings(max_examples=10)
def test_layers_may_have_other_quantizers(tiny, case):
    check_feedings(tiny(case.family, n_kv_heads=case.kv_heads), case, EXACT)


@given(case=cases(Middle.QUANTIZE, position=Position.ORIGINAL, prefill=Prefill.EXACT, overrides=True))
@settings(max_examples=15)
def test_exact_prefill_shows_prompt_rows_exact_keys(tiny, case):
    model = tiny(case.family, n_kv_heads=case.kv_heads)
    expected, oracle = read_whole(model.network, list(case.ids), case.rule)
    prompt, rest = case.ids[: case.prompt], case.ids[case.prompt :]
    for chunk in (len(case.ids), 3, 1):
        session = model.new_session(case.config)
        session.begin_prompt()
        rows = [feed(model, session, prompt, pieces(len(prompt), chunk))]
        session.end_prompt()
        if rest:
            rows.append(feed(model, session, rest, pieces(len(rest), chunk)))
        assert (torch.cat(rows) - expected).abs().max() <= EXACT
        check_codes(session, oracle, case)


def pieces(tokens: int, chunk: int) -> list[int]:
    return [min(chunk, tokens - start) for start in range(0, tokens, chunk)]


@given(case=cases(Middle.QUANTIZE, overrides=True))
@settings(max_examples=8)
def test_codes_never_change_after_sealing(tiny, case):
    model = tiny(case.family, n_kv_heads=case.kv_heads)
    session = model.new_session(case.config)
    before: dict = {}
    for token in case.ids:
        model.forward([token], session, last_only=True)
        now = stored(session)
        for key, tensor in before.items():
            assert torch.equal(now[key][:, :, : tensor.shape[2]], tensor)
        before = now


@given(case=st.one_of(cases(Middle.KEEP), cases(Middle.EVICT), cases(Middle.QUANTIZE)))
@settings(max_examples=15)
def test_nothing_is_lost_or_doubled(tiny, case):
    """Tiers partition the tokens, shares sum to 1, and the held tokens are those the tiers name."""
    model = tiny(case.family, n_kv_heads=case.kv_heads)
    for lengths in case.feedings:
        session = model.new_session(case.config)
        session.observer = check_mass
        start = 0
        for length in lengths:
            model.forward(case.ids[start : start + length], session, last_only=True)
            start += length
            check_spans(session, case, start)


def check_mass(layer: int, result: Attention, step: StepPlan) -> None:
    del layer, step
    assert (result.mass().sum(0) - 1).abs().max() <= 1e-12


def check_spans(session, case: Case, tokens: int) -> None:
    spans = session.spans()
    edges = [0, *(span.stop for span in spans)]
    assert [span.start for span in spans] == edges[:-1]
    assert edges[-1] == tokens
    assert all(span.stop > span.start for span in spans)
    length = {tier: 0 for tier in Tier} | {span.tier: span.stop - span.start for span in spans}
    visible, coded = case.rule.row(tokens - 1)
    sealed = length[Tier.QUANTIZED] + length[Tier.OFFLOADED]
    assert sealed == len(coded)
    assert length[Tier.EVICTED] == tokens - len(visible)
    assert length[Tier.SINK] == min(tokens, case.config.sink_size)
    assert length[Tier.WINDOW] == min(case.config.window_size, tokens - length[Tier.SINK])
    for layer in session.layers:
        for side in ("key", "value"):
            assert len(layer.sinks[side]) == length[Tier.SINK]
            assert len(layer.recent[side]) == length[Tier.WINDOW] + length[Tier.EXACT]
        assert layer.sealed.tokens == sealed
