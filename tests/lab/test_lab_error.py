"""The error view against the whole-matrix oracle in float64: every error, both kinds of output, the words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kvviz.config import CacheConfig, Middle
from kvviz.engine import Corpus, score
from kvviz.errors import KvvizError
from kvviz.experiment import LabResult
from kvviz.figures.lab import lab_panels
from kvviz.lab import perform
from kvviz.models.tiny import tiny_model
from kvviz.quant_config import QuantConfig
from tests.oracles.model_oracle import OracleRun, Rule, read_whole

TEXT = Corpus("words", "some words, and some other words; " * 30, "0" * 64)
KEY, VALUE = "int3:channel:g32:minmax", "int4:token:g16:absmax"
SMALL = {"start": 5, "length": 330, "skip": 250, "key": KEY, "value": VALUE}


def result_of(model, **given) -> LabResult:
    *_, result = perform(model, "error", {**SMALL, **given}, corpus=TEXT)
    assert isinstance(result, LabResult)
    return result


def oracle(model, key: str, value: str, monkeypatch) -> tuple[OracleRun, list[tuple[torch.Tensor, ...]]]:
    """The whole-matrix run under the rule, and for each layer its output, and what the same queries read of
    exact keys and values, ``(H, T, D)``."""
    outputs = []
    plain = OracleRun.read

    def both(self, layer, query, k, v, scale):
        output = plain(self, layer, query, k, v, scale)
        group = query.shape[1] // k.shape[1]
        keys, values = (x[0].repeat_interleave(group, 0) for x in (k, v))
        scores = (query[0] @ keys.mT * scale).masked_fill(~self.visible, -torch.inf)
        outputs.append((output[0], torch.softmax(scores, -1) @ values))
        return output

    monkeypatch.setattr(OracleRun, "read", both)
    ids = model.encode(TEXT.text, False)[5:335]
    _, run = read_whole(model.network, ids, Rule(4, 128, "quantize", 64, key, value))
    return run, outputs


def relative(exact, other) -> float:
    exact, other = np.asarray(exact), np.asarray(other)
    return math.sqrt(((exact - other) ** 2).sum() / (exact**2).sum())


@pytest.mark.parametrize(
    ("key", "value"), [(KEY, VALUE), ("int4:channel:g32:minmax+prerotary", "nf4:token:g16+hadamard")]
)
def test_every_error_is_the_oracle_s(tiny, monkeypatch, key, value):
    model = tiny()
    result = result_of(model, key=key, value=value)
    run, outputs = oracle(model, key, value, monkeypatch)
    _, plain = oracle(model, "none", "none", monkeypatch)
    arrays, sealed = result.arrays, slice(4, 4 + 192)
    assert run.sealed == 192
    for layer in range(2):
        for side, exact, coded in (("key", run.keys, run.key_codes), ("value", run.values, run.value_codes)):
            x, y = exact[layer][:, sealed].numpy(), np.asarray(coded[layer].restored)
            heads = [relative(x[h], y[h]) for h in range(2)]
            np.testing.assert_allclose(arrays[f"{side}_heads"][layer], heads, rtol=1e-6)
            channels = [relative(x[h, :, c], y[h, :, c]) for h in range(2) for c in range(16)]
            np.testing.assert_allclose(arrays[f"{side}_channels"][layer], channels, rtol=1e-6)
            blocks = [relative(x[:, t : t + 64], y[:, t : t + 64]) for t in (0, 64, 128)]
            np.testing.assert_allclose(arrays[f"{side}_blocks"][layer], blocks, rtol=1e-6)
            assert arrays[f"{side}_max"][layer] == pytest.approx(np.abs(x - y).max(), rel=1e-6)
        output, exact_output = outputs[layer]
        rows = slice(250, None)
        alone = relative(exact_output[:, rows], output[:, rows])
        before = relative(plain[layer][0][:, rows], output[:, rows])
        assert arrays["alone"][layer] == pytest.approx(alone, rel=1e-6)
        assert arrays["before"][layer] == pytest.approx(before, rel=1e-6)
    assert arrays["alone"][0] == pytest.approx(arrays["before"][0], rel=1e-6)  # nothing came before it
    assert arrays["before"][1] > arrays["alone"][1]


def test_the_words_are_the_score_s_and_watching_changes_nothing(tiny):
    model, result = tiny(), result_of(tiny())
    cache = CacheConfig(middle=Middle.QUANTIZE, key=QuantConfig.parse(KEY), value=QuantConfig.parse(VALUE))
    expected = score(model, model.encode(TEXT.text, False)[5:335], cache, skip=250)
    main = result.tables["error_score"]
    found = dict(zip([c.key for c in main.columns], main.rows[0], strict=True))
    assert found["ppl"] == expected.ppl
    assert found["kl"] == expected.kl > 0
    assert found["top1"] == expected.top1
    assert found["pair_bits"] == expected.memory.effective_bits
    assert found["cache_bytes"] == expected.memory.used_bytes
    assert found["pair_ppl_change"] == pytest.approx(expected.ppl / expected.ppl_full - 1)
    energies = expected.seal_error  # counted while sealing, not read back: the same blocks
    by_head = np.sqrt(energies.key_error.sum(2) / energies.key_signal.sum(2))
    np.testing.assert_allclose(result.arrays["key_heads"], by_head, rtol=1e-9)


def test_a_channel_of_600_is_not_averaged_away():
    """The layer's mean error looks small beside the outlier; the channels tell."""
    model = tiny_model("qwen2")
    with torch.no_grad():
        model.network.base_model.layers[1].self_attn.k_proj.bias[15] = 600.0
    result = result_of(model, key="int4:token:g16:minmax")
    layers = result.tables["error_layers"]
    assert layers.column("key_error")[1] < 0.1
    assert layers.column("key_worst_error")[1] > 1
    assert layers.column("key_max_error")[1] > 10
    channels = result.arrays["key_channels"][1]
    assert (channels[:16] > 0.5).sum() >= 8
    assert channels[15] < 0.1
    drawn = lab_panels(result)[2].payload
    assert drawn["layout"]["coloraxis"]["cmax"] >= channels.max()


def test_an_exact_side_has_no_error(tiny):
    result = result_of(tiny(), key="none")
    assert not result.arrays["key_heads"].any()
    assert set(result.tables["error_layers"].column("key_snr")) == {None}
    assert result.arrays["value_heads"].all()
    assert [len(panel.payload["data"]) for panel in lab_panels(result)] == [2, 2, 4]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"key": "none", "value": "none"}, "lab_none_coded"),
        ({"length": 190}, "lab_no_block"),
        ({"skip": 329}, "score_skip"),
        ({"value": "nuq3:token:g16"}, "calibration_missing"),
        ({"length": 600}, "context_exceeded"),
    ],
)
def test_refused_before_anything_is_read(tiny, given, code):
    with pytest.raises(KvvizError) as refusal:
        perform(tiny(), "error", {**SMALL, **given}, corpus=TEXT)
    assert refusal.value.code == code
