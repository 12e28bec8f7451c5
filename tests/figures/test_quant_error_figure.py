"""Quantization error: exact ratios, the outlier that the mean hides, exact sides in words."""

import dataclasses

import numpy as np
import pytest

from kvviz.config import Offload
from kvviz.figures.quant_error import quant_error_data, quant_error_figure, relative_error, side_error, snr_db
from kvviz.quant_config import QuantConfig
from kvviz.record import RunRecord
from tests.builders import FULL, STACK, make_record

KEYS_EXACT = dataclasses.replace(STACK, key=QuantConfig(), offload=Offload.NONE)


def test_layer_error_is_the_root_of_error_over_signal():
    data = quant_error_data(make_record(8, 4))
    np.testing.assert_allclose(data.key.layer, np.sqrt([0.01, 0.02]), rtol=1e-12)
    np.testing.assert_allclose(data.value.layer, np.sqrt([0.04, 0.08]), rtol=1e-12)
    assert data.sealed_tokens == 6


def test_snr_is_ten_log_ten_of_signal_over_error():
    np.testing.assert_allclose(snr_db(np.sqrt(np.array([0.01, 0.5]))), [20, 10 * np.log10(2)], rtol=1e-12)
    assert np.isnan(snr_db(np.array([0.0]))).all()


def test_an_outlier_channel_is_seen_and_not_averaged_away():
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(128, 64))
    keys[:, 7] += 600
    scale = np.abs(keys).max(1, keepdims=True) / 7  # 4 bits, one scale a token
    error = (np.round(keys / scale) * scale - keys) ** 2
    side = side_error((keys**2).sum(0)[None, None], error.sum(0)[None, None])
    others = [c for c in range(64) if c != 7]
    lost = np.sqrt(error[:, others].sum() / (keys[:, others] ** 2).sum())
    assert side.layer[0] < 0.02  # what a mean alone would show
    assert side.median[0] == pytest.approx(lost, rel=0.05)
    assert side.median[0] > 0.9
    assert side.worst[0] >= side.median[0]


def test_no_error_is_zero_and_error_without_signal_is_unknown():
    got = relative_error(np.array([0.0, 0.0, 4.0, 4.0]), np.array([0.0, 1.0, 0.0, 1.0]))
    np.testing.assert_array_equal(got, [0, np.nan, 0, 0.5])


def test_figure_has_line_worst_and_median_for_each_side_and_run():
    payload = quant_error_figure([make_record(8, 4), make_record(8, 4, label="other", seed=1)])
    names = [t["name"] for t in payload["data"]]
    assert names[:6] == [
        "A: full stack", "A worst channel", "A median channel",
        "B: other", "B worst channel", "B median channel",
    ]  # fmt: skip
    assert len(names) == 12
    assert {t["xaxis"] for t in payload["data"]} == {"x", "x2"}
    assert payload["layout"]["yaxis"]["type"] == "log"
    assert payload["layout"]["yaxis2"]["matches"] == "y"
    assert "type" not in quant_error_figure([make_record(8, 4)], "snr_db")["layout"]["yaxis"]


def test_exact_sides_and_unsealed_runs_are_said_in_words():
    payload = quant_error_figure([make_record(8, 4, cache=KEYS_EXACT), make_record(8, 4, cache=FULL)])
    key, value = (a["text"].replace("<br>", " ") for a in payload["layout"]["annotations"])
    assert "A: keys are stored" in key
    assert "exactly" in key
    assert "B: no block is sealed" in key
    assert "B: no block is sealed" in value
    assert "stored" not in value
    assert len([t for t in payload["data"] if t.get("name")]) == 3


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (RunRecord(), "press Run"),
        (make_record(8, 0, end=None), "prompt"),
        (make_record(8, 4, cache=FULL), "No block is sealed"),
        (make_record(8, 0, end="failed"), "failed"),
    ],
)
def test_nothing_sealed_is_a_sentence(record, words):
    payload = quant_error_figure([record])
    assert payload["data"] == []
    assert words in payload["layout"]["annotations"][0]["text"]
