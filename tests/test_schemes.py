"""The one list of schemes: enough of them, all different, all usable on other shapes, all in the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvviz.config import CacheConfig
from kvviz.quant_config import QuantConfig
from kvviz.schemes import SCHEMES, cache_of, fitted, scheme_names, schemes

README = Path(__file__).resolve().parents[1] / "README.md"


def test_there_are_a_dozen_and_no_two_alike():
    assert len(SCHEMES) >= 12
    assert len(set(scheme_names())) == len(SCHEMES)
    assert len({(scheme.key, scheme.value) for scheme in SCHEMES}) == len(SCHEMES)


@pytest.mark.parametrize("scheme", SCHEMES, ids=scheme_names())
@pytest.mark.parametrize("head_dim", [16, 64, 80, 128])
def test_every_scheme_fits_every_usual_model(scheme, head_dim):
    key, value = scheme.sides(head_dim, 64)
    cache = cache_of(key, value, head_dim=head_dim, n_layers=3)
    cache.check_model(n_layers=3, head_dim=head_dim, calibrated=True)
    if head_dim == 64:
        assert (key.spec, value.spec) == (scheme.key, scheme.value)
    assert scheme.needs_calibration == ("nuq" in scheme.key)


def test_groups_are_shortened_to_what_divides():
    assert fitted(QuantConfig.parse("int4:token:g64:minmax"), 80, 64).group_size == 16
    assert fitted(QuantConfig.parse("int4:channel:g64:minmax"), 80, 32).group_size == 32
    assert fitted(QuantConfig.parse("fp8"), 80, 32).group_size is None


@pytest.mark.parametrize(("edges", "layers"), [(0, []), (1, [0, 4]), (2, [0, 1, 3, 4]), (9, [0, 1, 2, 3, 4])])
def test_edge_layers_are_held_at_8_bits(edges, layers):
    key, value = SCHEMES[-1].sides(16, 64)
    cache = cache_of(key, value, head_dim=16, n_layers=5, edge_layers=edges, sink_size=0)
    assert [override.layer for override in cache.overrides] == layers
    for layer in range(5):
        expected = "int8:token:g16:absmax" if layer in layers else value.spec
        assert cache.side(layer, "value").spec == expected
    assert cache.sink_size == 0
    assert CacheConfig.from_dict(cache.to_dict()) == cache


def test_names_choose_in_the_list_s_order():
    assert [s.name for s in schemes(["nf4", "int8"])] == ["int8", "nf4"]


def test_the_readme_has_a_row_for_each_with_its_quantizers():
    rows = [line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    for scheme in SCHEMES:
        assert any(f"| `{scheme.key}` | `{scheme.value}` |" in row for row in rows), scheme.name
