"""Positions: the mistake by an oracle that renumbers keys; sampling, memory, refusals."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from kvviz.catalogue import keys
from kvviz.config import CacheConfig, Middle
from kvviz.engine import Corpus
from kvviz.errors import KvvizError
from kvviz.experiment import LabResult
from kvviz.lab import perform
from kvviz.lab.bench import Bench
from kvviz.lab.positions import ShiftedKeysSession, new_session
from kvviz.models.tiny import tiny_model
from tests.oracles.angles import exact_angles
from tests.oracles.model_oracle import OracleRun, Rule, _reading_whole, _rotate, _unrotate

TEXT = Corpus("words", "some words, and some other words; " * 40, "0" * 64)
ALL = ["original", "in_cache", "wrong"]
SMALL = {"modes": ALL, "length": 700, "sinks": 3, "window": 20, "start": 5, "sample": 16, "rolling": 4}
IDS = torch.randint(0, 256, (50,), generator=torch.Generator().manual_seed(3)).tolist()


class Renumbered(OracleRun):
    """Keys that are kept are numbered from 0 whatever their row; the query stays where the text put it."""

    def _in_cache_scores(self, scores, q, k, k_seen, rows):
        cos, sin = (x[0] for x in self.rotary(q.new_empty(1), torch.arange(self.tokens)[None]))
        plain = _unrotate(k, cos, sin)
        scores = scores.clone()
        for i in range(rows.start, rows.stop):
            held = torch.nonzero(self.visible[i])[:, 0]
            numbers = torch.arange(len(held))
            renumbered = _rotate(plain[:, held], cos[numbers], sin[numbers])
            scores[:, i - rows.start, held] = (q[:, i : i + 1] @ renumbered.mT)[:, 0]
        return scores


@pytest.mark.parametrize("family", ["llama", "phi3"])
@pytest.mark.parametrize("chunk", [50, 7, 1])
def test_the_mistake_is_the_oracle_s(tiny, family, chunk):
    model = tiny(family)
    rule = Rule(3, 9, "evict", in_cache=True)
    with exact_angles(model.network):
        run = Renumbered(rule, len(IDS), model.network.base_model.rotary_emb)
        with _reading_whole(model.network), torch.inference_mode():
            expected = model.network(
                input_ids=torch.tensor([IDS]), use_cache=False, kvviz_test_run=run
            ).logits[0]
        session = model.new_session(CacheConfig(3, 9, Middle.EVICT), ShiftedKeysSession)
        logits = torch.cat(
            [
                model.forward(IDS[start : start + chunk], session, last_only=False)
                for start in range(0, len(IDS), chunk)
            ]
        )
        right = model.new_session(CacheConfig(3, 9, Middle.EVICT))
        plain = model.forward(IDS, right, last_only=False)
    assert (logits - expected).abs().max() < 1e-9
    assert (logits[:12] - plain[:12]).abs().max() < 1e-9  # nothing is evicted yet
    assert (logits[12:] - plain[12:]).abs().max() > 1e-2  # and then it matters


def test_logits_of_chosen_rows_are_those_of_all(tiny):
    model = tiny()
    whole = model.forward(IDS, model.new_session(CacheConfig()), last_only=False)
    some = model.forward(IDS, model.new_session(CacheConfig()), last_only=False, rows=[0, 7, 49])
    none = model.forward(IDS, model.new_session(CacheConfig()), last_only=False, rows=[])
    assert some.shape == (3, whole.shape[1])
    assert (some - whole[[0, 7, 49]]).abs().max() < 1e-12
    assert none.shape == (0, whole.shape[1])


def test_sampled_rows_far_beyond_the_context(tiny):
    model = tiny()
    *progress, result = perform(model, "positions", SMALL, corpus=TEXT)
    assert isinstance(result, LabResult)
    assert progress[-1].done == progress[-1].total == 3 * 700
    row, nll = result.arrays["row"], result.arrays["nll"]
    assert nll.shape == (3, len(row))
    assert len(row) == 3 * 16
    assert row[0] == 0
    assert row[-1] == 698  # the last row has nothing to predict
    ids = Bench(model, TEXT).text(5, 700)
    for place, mode in enumerate(ALL):
        session = new_session(Bench(model, TEXT), mode, 3, 20)
        logits = model.forward(ids, session, last_only=False)
        expected = -logits.log_softmax(-1)[row, torch.tensor(ids)[row + 1]]
        np.testing.assert_allclose(nll[place], expected.numpy(), atol=1e-4)
    held = result.arrays["held_bytes"]
    assert set(held.flatten().tolist()) == {23 * 2 * 2 * 2 * 16 * 8}  # tokens, sides, layers, heads, D, bytes
    assert result.marks["context"] == 512
    bands = result.tables["bands"]
    assert (bands.column("row_from")[0], bands.column("row_to")[-1]) == (0, 700)
    assert None not in bands.column("nll_wrong")
    modes = result.tables["modes"]
    beyond = np.exp(nll[:, row >= 512].mean(1))
    np.testing.assert_allclose(np.asarray(modes.column("ppl_beyond"), dtype=float), beyond)
    result.to_json()
    assert set(result.to_csv()) == {"positions-modes.csv", "positions-bands.csv"}
    for name, table in result.tables.items():
        assert f"lab.table.{name}" in keys()
        assert {f"lab.column.{c.key}.{part}" for c in table.columns for part in ("label", "info")} <= keys()


@pytest.mark.parametrize("length", [2, 22, 257])
def test_short_texts_have_no_nan(tiny, length):
    *_, result = perform(tiny(), "positions", {**SMALL, "length": length}, corpus=TEXT)
    assert np.isfinite(result.arrays["rolling_nll"]).all()
    assert "nan" not in result.finding.lower()
    assert (str(length) in result.finding) == (length < 23)
    assert result.tables["modes"].column("ppl_beyond") == [None] * 3


def test_refusals_and_stopping(tiny):
    scaled = tiny_model(rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0})
    for model, given, code in [
        (scaled, {}, "in_cache_refused"),
        (scaled, {"modes": ["wrong"]}, "in_cache_refused"),
        (tiny(), {"window": 510}, "window_context"),
        (tiny(), {"length": 90_000}, "text_slice"),
        (tiny(), {"modes": []}, "choose_one"),
        (tiny(), {"sample": 257}, "whole_range"),
    ]:
        with pytest.raises(KvvizError) as refusal:
            perform(model, "positions", {**SMALL, **given}, corpus=TEXT)
        assert refusal.value.code == code
    *_, result = perform(scaled, "positions", {**SMALL, "modes": ["original"], "length": 60}, corpus=TEXT)
    assert np.isfinite(result.arrays["nll"]).all()
    stop = threading.Event()
    steps = perform(tiny(), "positions", SMALL, corpus=TEXT, stop=stop)
    assert [next(steps).done, next(steps).done] == [0, 256]
    stop.set()
    with pytest.raises(KvvizError) as stopped:
        next(steps)
    assert stopped.value.code == "lab_stopped"


@pytest.mark.real
@pytest.mark.timeout(600)
def test_the_mistake_spoils_the_window_at_once(default_model):
    given = {"modes": ALL, "length": 1024, "sample": 64}
    *_, result = perform(default_model, "positions", given)
    print(result.tables["modes"].to_csv(), result.elapsed_ms)  # noqa: T201
    original, in_cache, wrong = (float(x) for x in result.tables["modes"].column("ppl_inside"))
    assert wrong > 2 * original
    assert in_cache == pytest.approx(original, rel=0.1)  # not far beyond the context both are right
    held = result.arrays["held_bytes"]
    assert set(held.flatten().tolist()) == {128 * 30 * 2 * 3 * 64 * 4}
    assert result.marks["context"] == 8192
