"""Static scales on the wrong text: clipping counted again from exact keys, the score's damage, bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvviz.cache.calibrate import calibration_of
from kvviz.config import CacheConfig, Middle
from kvviz.engine import calibrate, score
from kvviz.errors import KvvizError
from kvviz.experiment import LabResult
from kvviz.figures.lab import lab_panels
from kvviz.lab import perform
from kvviz.lab.calibration import DOMAINS, domain_text
from kvviz.quant_config import QuantConfig

KEY, VALUE = "int4:channel:g32:minmax", "int3:token:g16:absmax"
SMALL = {"learn_tokens": 70, "length": 330, "key": KEY, "value": VALUE, "guard": "5", "run_on": "math"}
DYNAMIC, MATCHED, MISMATCHED, GUARDED = range(4)


def result_of(model, **given) -> LabResult:
    *_, result = perform(model, "calibration", {**SMALL, **given})
    assert isinstance(result, LabResult)
    return result


def ids_of(model, domain: str, start: int, count: int) -> list[int]:
    return model.encode(domain_text(domain).text, False)[start : start + count]


def exact(model, ids: list[int]) -> dict[str, np.ndarray]:
    """``(L, H_kv, T, D)`` of a plain reading."""
    session = model.new_session(CacheConfig())
    model.forward(ids, session, last_only=True)
    return {s: np.stack([x.exact(s)[0].numpy() for x in session.layers]) for s in ("key", "value")}


def test_clipped_shares_are_counted_again_from_exact_values(tiny):
    """Layer 0 has the same keys and values whatever the cache; its ranges are taken by hand."""
    model = tiny()
    result = result_of(model)
    run = exact(model, ids_of(model, "math", 70, 330))
    for place, domain in ((MATCHED, "math"), (MISMATCHED, "chat")):
        learnt = exact(model, ids_of(model, domain, 0, 70))
        keys = learnt["key"][0, :, 4:68]
        low = keys.min(1, keepdims=True).astype(np.float16).astype(float)
        scale = ((keys.max(1, keepdims=True) - keys.min(1, keepdims=True)) / 15).astype(np.float16)
        high = low + 15 * scale.astype(float)
        met = run["key"][0, :, 4:196]
        share = ((met < low) | (met > high)).mean()
        assert result.arrays["clip_key"][place, 0] == pytest.approx(share, abs=1e-12)
        assert share > 0.005
        values = learnt["value"][0, :, 4:68]
        limit = 3 * (np.abs(values).max((1, 2), keepdims=True) / 3).astype(np.float16).astype(float)
        share = (np.abs(run["value"][0, :, 4:196]) > limit).mean()
        assert result.arrays["clip_value"][place, 0] == pytest.approx(share, abs=1e-12)
    assert np.isnan(result.arrays["clip_key"][DYNAMIC]).all()
    assert (result.arrays["clip_key"][GUARDED] <= result.arrays["clip_key"][MISMATCHED] + 1e-12)[0]
    assert result.arrays["clip_key"][GUARDED, 0] < result.arrays["clip_key"][MISMATCHED, 0]


def test_damage_and_bytes_are_the_score_s(tiny):
    model = tiny()
    result = result_of(model)
    main = result.tables["calibration"]
    for place, suffix, domain in (
        (DYNAMIC, "", None), (MATCHED, "+static", "math"), (GUARDED, "+static+guard5", "chat"),
    ):  # fmt: skip
        cache = CacheConfig(
            middle=Middle.QUANTIZE,
            key=QuantConfig.parse(KEY + suffix),
            value=QuantConfig.parse(VALUE + suffix),
        )
        learnt = calibrate(model, ids_of(model, domain, 0, 70), cache) if domain else None
        expected = score(model, ids_of(model, "math", 70, 330), cache, skip=195, calibration=learnt)
        row = dict(zip([c.key for c in main.columns], main.rows[place], strict=True))
        assert row["kl"] == pytest.approx(expected.kl, rel=1e-9)
        assert row["kl"] > 1e-4
        assert row["ppl"] == pytest.approx(expected.ppl, rel=1e-9)
        assert row["pair_bits"] == expected.memory.effective_bits
        assert row["cache_bytes"] == expected.memory.used_bytes
        assert row["calibration_bytes"] == (learnt.n_bytes if learnt else 0)
    # 2 layers, 2 sides, 2 heads, 3 blocks of 1,024 values: 5 % of them, 8 bytes and 2 for the place
    assert main.column("guard_bytes") == [0, 0, 0, 2 * 2 * 2 * 3 * 51 * 10]
    bits = main.column("pair_bits")
    assert bits[MATCHED] == bits[MISMATCHED] == 3.5  # codes alone
    assert bits[GUARDED] == pytest.approx(3.5 + 51 * 80 / 1024)


def test_what_is_run_was_not_learnt_on(tiny):
    model = tiny()
    learnt, run = ids_of(model, "math", 0, 70), ids_of(model, "math", 70, 330)
    whole = ids_of(model, "math", 0, 400)
    assert learnt + run == whole


def test_keys_before_rotary_and_codebooks(tiny):
    """Everything that needs a calibration goes through: unrotated keys, k-means for every configuration."""
    result = result_of(tiny(), key="nuq3:channel:g32+prerotary", value="nuq2:token:g16")
    assert (result.arrays["clip_key"][MISMATCHED] >= 0).all()
    assert result.tables["calibration"].column("calibration_bytes")[DYNAMIC] > 0  # codebooks
    model = tiny()
    session = model.new_session(CacheConfig())
    model.forward(ids_of(model, "chat", 0, 70), session, last_only=True)
    cache = CacheConfig(middle=Middle.QUANTIZE, key=QuantConfig.parse("nuq3:channel:g32+prerotary+static"))
    learnt = calibration_of(session, cache).side(0, "key")
    assert learnt is not None
    assert learnt.levels is not None
    run = model.new_session(CacheConfig())
    model.forward(ids_of(model, "math", 70, 330), run, last_only=True)
    met = run.key_turn.undo(run.layers[0].exact("key")[:, :, 4:196], 4)[0].numpy()
    low, reach = (part.double().numpy()[0, :, 0, :, :, 0] for part in (learnt.minimum, learnt.scale))
    share = ((met < low) | (met > low + reach)).mean()
    assert result.arrays["clip_key"][MISMATCHED, 0] == pytest.approx(share, abs=1e-12)
    assert torch.isfinite(learnt.scale).all()


def test_texts_of_three_kinds_are_long_enough_for_the_defaults():
    for domain in DOMAINS:
        corpus = domain_text(domain)
        assert len(corpus.text) > 3 * (384 + 768)
    assert len({domain_text(domain).sha256 for domain in DOMAINS}) == 3


def test_figures_leave_dynamic_scales_out_of_clipping(tiny):
    result = result_of(tiny(), value="none")
    clipped, damage, bits = (panel.payload for panel in lab_panels(result))
    assert len(clipped["data"]) == 3  # keys of the three static ones; values are exact
    assert len(damage["data"][0]["text"]) == len(bits["data"][0]["text"]) == 4


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"learn_on": "math"}, "lab_same_domain"),
        ({"key": "none", "value": "none"}, "lab_none_coded"),
        ({"key": "int4:token:g16:absmax+outliers1"}, "quant_guard"),
        ({"length": 600}, "context_exceeded"),
        ({"key": "int4:token:g64:absmax"}, "quant_group"),
    ],
)
def test_refused_before_anything_is_read(tiny, given, code):
    with pytest.raises(KvvizError) as refusal:
        perform(tiny(), "calibration", {**SMALL, **given})
    assert refusal.value.code == code
