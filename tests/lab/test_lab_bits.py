"""Bits by layer: the search against trying all, the numbers against the engine's own score."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.catalogue import keys
from kvviz.config import CacheConfig
from kvviz.engine import Corpus, score
from kvviz.errors import ConfigError
from kvviz.figures.lab import lab_panels
from kvviz.lab import perform
from kvviz.lab.bench import Bench
from kvviz.lab.bits import WIDEST, WIDTHS, assigned, give_bits

TEXT = Corpus("words", "some words, and some other words; " * 60, "0" * 64)
SMALL = {"start": 0, "length": 240, "other_start": 300, "other_length": 280}
LOSS = st.floats(0, 10, allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5).flatmap(lambda n: st.tuples(*[st.lists(LOSS, min_size=n, max_size=n)] * 3)),
    st.integers(2, 8),
)
def test_no_other_assignment_within_the_budget_sums_to_less(losses, budget):
    n_layers = len(losses[0])
    kl = dict(zip(WIDTHS, losses, strict=True)) | {WIDEST: [0.0] * n_layers}
    found = give_bits(kl, budget)
    assert sum(found) <= budget * n_layers
    least = min(
        sum(kl[width][layer] for layer, width in enumerate(widths))
        for widths in itertools.product(kl, repeat=n_layers)
        if sum(widths) <= budget * n_layers
    )
    assert sum(kl[width][layer] for layer, width in enumerate(found)) == pytest.approx(least)


def test_measured_alone_given_out_and_judged_on_another_text(tiny):
    model = tiny(context=1024)
    *progress, result = perform(model, "bits", SMALL, corpus=TEXT)
    assert progress[-1].done == progress[-1].total == (1 + 3 * 30) * 240 + 3 * 280
    bench, head_dim, n_layers = Bench(model, TEXT), model.facts.head_dim, model.facts.n_layers
    kl = result.arrays["kl"]
    assert kl.shape == (3, n_layers)
    ids = bench.text(0, 240)
    for i, width in enumerate(WIDTHS):
        for layer in range(n_layers):
            expected = score(model, ids, assigned({layer: width}, head_dim, None), skip=120)
            assert kl[i, layer] == pytest.approx(expected.kl, rel=1e-6)
    widths = result.arrays["given_bits"].tolist()
    assert widths == give_bits(dict(zip(WIDTHS, kl.tolist(), strict=True)) | {8: [0.0] * n_layers}, 3)
    main = result.tables["bits"]
    other = bench.text(300, 280)
    for label, value, bits in zip(
        main.column("scheme_name"), main.column("kl"), main.column("pair_bits"), strict=True
    ):
        cache = CacheConfig.from_dict(result.configurations[str(label)])
        expected = score(model, other, cache, skip=140)
        assert value == pytest.approx(expected.kl, rel=1e-6)
        assert bits == expected.memory.effective_bits
    even, chosen = main.column("pair_bits")
    assert chosen <= even
    bars, lines = (panel.payload["data"] for panel in lab_panels(result))
    assert len(bars) == 1
    assert [line["name"] for line in lines] == ["2 bits", "3 bits", "4 bits"]


def test_refusals_and_words(tiny):
    model = tiny(context=1024)
    for wrong in ({"budget": "5"}, {"length": 100}, {"other_start": 999_999}, {"length": 8000}):
        with pytest.raises(ConfigError):
            perform(model, "bits", {**SMALL, **wrong}, corpus=TEXT)
    assert {"lab.table.bits", "lab.table.bits-by-layer"} <= keys()
    assert np.array_equal(sorted(WIDTHS), WIDTHS)
