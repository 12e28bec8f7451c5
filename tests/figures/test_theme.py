"""The palette tells tiers apart by colour-blind vision, in grey and by shape; payloads are strict JSON."""

import itertools
import json

import numpy as np
import plotly.graph_objects as go
import pytest

from kvviz.catalogue import text
from kvviz.events import Tier
from kvviz.figures.theme import TIER_ORDER, log_scale, palette, tier_name, to_payload, token_label, wrapped

#: Machado 2009, full severity, linear RGB.
VISION = {
    "normal": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(color: str) -> np.ndarray:
    rgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def filled() -> list[str]:
    return [style.color for style in palette().tiers.values() if style.filled]


@pytest.mark.parametrize("vision", VISION)
def test_tiers_differ_to_every_eye(vision):
    seen = [lab(np.asarray(VISION[vision]) @ linear(color)) for color in filled()]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 15


def test_tiers_differ_in_grey():
    grey = sorted(lab(linear(color))[0] for color in filled())
    assert min(np.diff(grey)) > 7


@pytest.mark.parametrize("background", ["#ffffff", "#10141a"])
def test_tiers_stand_out_from_the_page(background):
    page = (TO_XYZ @ linear(background))[1] + 0.05
    for color in filled():
        own = (TO_XYZ @ linear(color))[1] + 0.05
        assert max(own, page) / min(own, page) > 1.5


def test_every_tier_has_its_own_glyph_shape_and_words():
    styles = palette().tiers
    assert set(styles) == set(TIER_ORDER) >= {tier.value for tier in Tier}
    assert (
        len({style.glyph for style in styles.values()})
        == len({s.shape for s in styles.values()})
        == len(styles)
    )
    for tier in TIER_ORDER:
        assert tier_name(tier)
        assert text(f"figures.tier_meaning.{tier}")


@pytest.mark.parametrize(
    "name",
    ["memory", "tier_mass", "tier_mass_steps", "attention", "quant_error", "strip", "texts", "metrics"],
)
def test_every_figure_has_a_title_and_says_what_to_look_for(name):
    assert text(f"figures.{name}.title")
    assert text(f"figures.{name}.look_for").endswith(".")


def test_log_scale_is_a_valid_colour_scale():
    places = [place for place, _ in log_scale(4)]
    assert places[0] == 0
    assert places[1] == pytest.approx(1e-4)
    assert places[-1] == 1
    assert places == sorted(places)
    colors = palette().sequential
    assert log_scale(4)[-1][1] == colors[-1]


def test_payload_is_strict_json_with_typed_arrays_and_no_template():
    payload = to_payload(go.Figure(go.Scatter(x=np.arange(3.0), y=[1.0, float("nan"), 2.0])))
    json.dumps(payload, allow_nan=False)
    assert set(payload["data"][0]["x"]) >= {"dtype", "bdata"}
    assert payload["data"][0]["y"] == [1.0, None, 2.0]
    assert "template" not in payload["layout"]


def test_labels_are_literal_and_short():
    assert token_label("<b>") == "&lt;b&gt;"
    assert token_label("x" * 30, 5) == "xxxx…"
    assert wrapped("<b> and more words", 8) == "&lt;b&gt; and<br>more<br>words"


def test_ideographs_are_wrapped_where_they_may_and_signs_stay_with_them():
    sentence = "没有封存的块，所以没有误差：K & V 精确。"
    lines = wrapped(sentence, 12).split("<br>")
    assert "".join(lines).replace(" ", "") == sentence.replace(" ", "").replace("&", "&amp;")
    assert len(lines) >= 3
    assert all(line[0] not in "，：。" for line in lines)
