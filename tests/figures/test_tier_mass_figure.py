"""Tier masses: exact values, fixed range, clicks, empty states."""

import base64
from dataclasses import replace

import numpy as np
import pytest

from kvviz.catalogue import text
from kvviz.events import MASS_TIERS
from kvviz.figures.tier_mass import (
    GROUPS,
    tier_mass_data,
    tier_mass_figure,
    tier_mass_over_steps_figure,
    tier_mass_summary,
)
from kvviz.record import RunRecord
from tests.builders import make_record


def test_groups_share_out_all_attention():
    record = make_record(9, 4)
    shares = [tier_mass_data(record, group).share for group in GROUPS]
    assert shares[0].shape == (2, 4)
    np.testing.assert_allclose(sum(shares), 1, atol=1e-6)


def test_middle_is_exact_plus_quantized_plus_offloaded_of_the_step():
    record = make_record(9, 4)
    data = tier_mass_data(record, "middle", 1)
    np.testing.assert_allclose(data.share, record.tier_mass[1][..., 2:].sum(-1), rtol=1e-6)
    assert data.step == 1


def test_none_is_the_latest_and_negative_counts_from_the_end():
    record = make_record(9, 4)
    assert tier_mass_data(record, "sink").step == 3
    assert tier_mass_data(record, "sink", -2).step == 2
    assert tier_mass_data(record, "sink", 4) is None
    assert tier_mass_data(record, "sink", -5) is None


def test_heatmap_has_layers_down_heads_across_and_a_fixed_range():
    record = make_record(9, 4)
    payload = tier_mass_figure(record, "sink")
    (trace,) = payload["data"]
    z = np.frombuffer(base64.b64decode(trace["z"]["bdata"]), dtype="f4").reshape(2, 4)
    np.testing.assert_array_equal(z, record.tier_mass[-1][..., 0])
    assert (trace["zmin"], trace["zmax"]) == (0, 1)
    assert trace["customdata"]["shape"] == "2, 4, 5"
    assert payload["layout"]["yaxis"]["autorange"] == "reversed"
    assert all(f"customdata[{i}]" in trace["hovertemplate"] for i in range(len(MASS_TIERS)))


def test_summary_is_the_mean_over_layers_and_heads():
    record = make_record(9, 4)
    summary = tier_mass_summary(record)
    assert summary.tokens.tolist() == [9, 10, 11, 12]
    expected = [mass.astype(np.float64).mean((0, 1)) for mass in record.tier_mass]
    np.testing.assert_allclose(summary.mean, expected, rtol=1e-12)
    np.testing.assert_allclose(summary.mean.sum(1), 1, atol=1e-6)


def test_lines_only_for_tiers_that_had_mass():
    names = [t["name"] for t in tier_mass_over_steps_figure(make_record(9, 4))["data"]]
    assert names == ["sink", "window", "exact", "offloaded"]


@pytest.mark.parametrize(
    "record", [RunRecord(), make_record(8, 0, end=None), make_record(8, 0, end="stopped")]
)
def test_nothing_measured_gives_a_sentence(record):
    assert len(tier_mass_summary(record).tokens) == 0
    for payload in (tier_mass_figure(record), tier_mass_over_steps_figure(record)):
        assert payload["data"] == []
        assert payload["layout"]["annotations"][0]["text"]


@pytest.mark.parametrize(("is_stored", "kind"), [(False, "measured"), (True, "stored")])
def test_hovers_over_steps_say_the_kind_of_the_record(is_stored, kind):
    payload = tier_mass_over_steps_figure(replace(make_record(8, 3), is_stored=is_stored))
    hovers = [trace["hovertemplate"] for trace in payload["data"]]
    assert hovers
    assert all(hover.endswith(f"<extra>{text(f'figures.kind.{kind}')}</extra>") for hover in hovers)
