"""The experiments on quantizers on the default model: what the README says of them, at quick sizes."""

from __future__ import annotations

import pytest

from kvviz.experiment import LabResult
from kvviz.figures.lab import lab_panels
from kvviz.lab import perform
from kvviz.ui.lab_views import plots

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def result_of(model, name: str, **given) -> LabResult:
    *_, result = perform(model, name, given)
    assert isinstance(result, LabResult)
    print(result.finding, result.elapsed_ms)  # noqa: T201
    assert len(lab_panels(result)) == 3
    return result


def test_a_real_key_channel_stands_out_and_the_frame_is_small(default_model):
    result = result_of(default_model, "values")
    if result.text_sha256.startswith("71f2ff5d99bdc1f9"):
        assert 63 in result.marks["outliers"][0]
    whole, *_ = result.tables["values_summary"].column("relative_error")
    finer = result_of(default_model, "values", quantizer="int4:channel:g32:minmax")
    assert finer.tables["values_summary"].column("relative_error")[0] < whole / 2
    turned = result_of(default_model, "values", quantizer="int4:token:g64:absmax+hadamard")
    for one in (result, finer, turned):
        assert sum(len(str(plot)) for plot in plots(one)) < 200_000


def test_requantizing_grows_where_the_scale_is_the_whole_cache_s(default_model):
    given = {"axes": ["token", "head"], "mappings": ["minmax"], "flushes": 8, "points": 1}
    result = result_of(default_model, "requantize", **given)
    token, head = result.tables["requantize"].column("key_growth")
    assert token == pytest.approx(1, abs=1e-3)
    assert head > 1.3
    once, again = (result.tables["requantize"].column(f"kl_{kind}") for kind in ("once", "again"))
    assert again[0] == pytest.approx(once[0], abs=1e-6)
    assert again[1] > 1.5 * once[1]


def test_the_error_is_followed_to_the_words(default_model):
    result = result_of(default_model, "error", length=512, skip=200)
    main = result.tables["error_score"]
    row = dict(zip([c.key for c in main.columns], main.rows[0], strict=True))
    assert row["pair_bits"] == 4.75
    assert 0 < row["kl"] < 0.02
    assert row["top1"] > 0.9
    assert result.arrays["before"][-1] > result.arrays["alone"][-1]
    assert 0.02 < result.arrays["key_heads"].mean() < 0.06 < result.arrays["value_heads"].mean() < 0.15


def test_static_scales_clip_more_on_another_kind_of_text(default_model):
    result = result_of(default_model, "calibration", run_on="code", length=264, learn_tokens=200)
    main = result.tables["calibration"]
    dynamic, matched, mismatched, guarded = main.column("kl")
    assert dynamic < matched < mismatched
    clipped = main.column("clipped_key")
    assert clipped[0] is None
    assert clipped[1] < clipped[2] > clipped[3]
    bits = main.column("pair_bits")
    assert bits[:3] == [4.75, 4.0, 4.0]
    assert bits[3] > 4.4
    assert guarded < mismatched
