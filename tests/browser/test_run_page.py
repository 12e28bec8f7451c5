"""One real run, looked at from all sides."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Page

from tests.browser import acting
from tests.browser.conftest import SCREENSHOTS

PLOTS = ("memory", "quant-error", "tier-steps", "tier-map", "attention")
WORDS = (
    ".kv-text", ".kv-status", ".kv-note", ".kv-metrics dt", ".kv-metrics dd", ".kv-metrics small", ".kv-look",
    ".kv-legend li", "#model-status .kv-view", ".kv-card h3", "#run", "#stop", ".kv-rail label span",
    "#memory text", "#attention text", "#host-note .kv-view",
)  # fmt: skip


@dataclass
class Watched:
    """A page after a run, and what was seen while it ran."""

    page: Page
    texts: dict[str, list[str]] = field(default_factory=lambda: {"a": [], "b": []})
    cells: dict[str, list[int]] = field(default_factory=lambda: {"a": [], "b": []})
    frames: dict[str, list[int]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def watched(open_page: Callable[..., Page]) -> Iterator[Watched]:
    """The opening comparison with a small window, watched while it streams."""
    page = open_page()
    assert "Full precision" in page.input_value("#preset-a input")
    assert "Full stack" in page.input_value("#preset-b input")
    seen = Watched(page)
    acting.ask(page, "Why does the moon look larger near the horizon? Explain it to a child.", tokens=48)
    acting.small_stack(page)
    acting.press_run(page)
    while {acting.state(page, s) for s in "ab"} & {"prefill", "running"}:
        for side in "ab":
            seen.texts[side].append(acting.text_of(page, side) if acting.generated(page, side) else "")
            seen.cells[side].append(acting.strip_count(page, side))
        for plot in PLOTS:
            seen.frames.setdefault(plot, []).append(acting.frames(page, plot))
        page.wait_for_timeout(150)
    page.wait_for_timeout(800)
    return seen


@pytest.mark.parametrize("side", ["a", "b"])
def test_both_texts_stream(watched: Watched, side: str) -> None:
    seen = list(dict.fromkeys(filter(None, watched.texts[side])))
    assert len(seen) >= 3, "the text was seen growing"
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(seen))
    assert acting.text_of(watched.page, side).startswith(seen[-1])


@pytest.mark.parametrize("side", ["a", "b"])
def test_the_numbers_are_there(watched: Watched, side: str) -> None:
    for key in ("ttft", "tpot", "rate", "generated", "kv_bytes", "ratio_16bit", "cache_bits"):
        assert acting.metric(watched.page, side, key) not in ("", "–"), key
    sealed = acting.metric(watched.page, side, "effective_bits")
    assert sealed == "–" if side == "a" else sealed.endswith("bits")


def test_the_strips_change_and_are_drawn(watched: Watched) -> None:
    for side in "ab":
        assert len(set(watched.cells[side])) >= 3
        box = watched.page.locator(f"#strip-{side} .kv-strip-canvas").bounding_box()
        assert box is not None
        assert box["width"] > 200
        assert box["height"] > 20
        inked = watched.page.evaluate(
            f"""() => {{
              const c = document.querySelector('#strip-{side} .kv-strip-canvas');
              const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
              return d.some((v, i) => i % 4 === 3 && v > 200);
            }}"""
        )
        assert inked
    legend = watched.page.inner_text("#strip-b .kv-legend")
    assert "sink" in legend
    assert "window" in legend
    assert "offloaded" in legend


def test_the_charts_change_and_are_drawn(watched: Watched) -> None:
    for plot in PLOTS:
        assert len(set(watched.frames[plot])) >= 2, plot
        box = watched.page.locator(f"#{plot} .main-svg").first.bounding_box()
        assert box is not None
        assert box["width"] > 250, plot
        assert box["height"] > 200, plot
        assert watched.page.evaluate(f"document.querySelector('#{plot} .kv-plot').data.length") > 0, plot


def test_a_click_on_the_map_shows_that_head(watched: Watched) -> None:
    page = watched.page
    before = acting.heat(page, "attention")
    shown = json.loads(before)
    assert max(row[0] for row in shown[20:]) > 30, "the first map shows a sink (percent on the first token)"
    acting.click_cell(page, 17, 5)
    page.wait_for_function("document.querySelector('#layer input').value === '17'")
    assert page.input_value("#head input") == "5"
    page.wait_for_function(
        "before => JSON.stringify(document.querySelector('#attention .kv-plot').data[0].z) !== before",
        arg=before,
    )
    for layer in (3, 2, 1, 0):
        acting.click_cell(page, layer, 0)
    page.wait_for_function("document.querySelector('#layer input').value === '0'")


def test_the_map_follows_configuration_group_and_step(watched: Watched) -> None:
    page = watched.page
    changed = "before => JSON.stringify(document.querySelector('#tier-map .kv-plot').data[0].z) !== before"
    for label in ("#shown label:has-text('B')", "#group label:has-text('middle')"):
        before = acting.heat(page, "tier-map")
        page.click(label)
        page.wait_for_function(changed, arg=before)
    before, cells = acting.heat(page, "tier-map"), acting.strip_count(page, "b")
    page.fill("#step input[type=number]", "3")
    page.press("#step input[type=number]", "Enter")
    page.wait_for_function(changed, arg=before)
    assert not page.is_checked("#latest input")
    page.wait_for_function(f"Number(document.querySelector('#strip-b .kv-view').dataset.count) < {cells}")
    page.set_checked("#latest input", True)
    page.wait_for_function(f"document.querySelector('#strip-b .kv-view').dataset.count === '{cells}'")


def test_a_token_tells_about_itself(watched: Watched) -> None:
    page = watched.page
    page.locator("#strip-b .kv-strip-canvas").scroll_into_view_if_needed()
    page.hover("#strip-b .kv-strip-canvas", position={"x": 8, "y": 8})
    tip = page.inner_text("#strip-b .kv-tip")
    for words in ("position: 0", "sink", "bits", "bytes", "attention received", "measured"):
        assert words in tip
    page.focus("#strip-b .kv-strip-canvas")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert "position: 1" in page.inner_text("#strip-b .kv-tip")
    page.keyboard.press("Escape")
    assert page.is_hidden("#strip-b .kv-tip")


def test_it_says_that_host_and_device_are_the_same_ram(watched: Watched) -> None:
    if "CPU" in watched.page.inner_text("#model-status"):
        assert "same RAM" in watched.page.inner_text("#host-note")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_can_be_read(watched: Watched, theme: str) -> None:
    page = watched.page
    if page.evaluate("document.body.classList.contains('dark')") != (theme == "dark"):
        page.click("#theme")
    page.mouse.move(5, 5)
    page.wait_for_timeout(700)
    SCREENSHOTS.mkdir(exist_ok=True)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.wait_for_timeout(400)
    page.screenshot(path=SCREENSHOTS / f"run-1280-{theme}.png", full_page=True)
    weak = [
        (where, round(ratio, 2))
        for where, ratio in page.evaluate(acting.CONTRAST, list(WORDS))
        if ratio < 4.5
    ]
    assert not weak
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(1200)
    page.screenshot(path=SCREENSHOTS / f"run-390-{theme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "no sideways scrolling"
    rail, stage = page.locator(".kv-rail").bounding_box(), page.locator(".kv-stage").bounding_box()
    assert rail is not None
    assert stage is not None
    assert rail["y"] + rail["height"] <= stage["y"], "the rail comes first"
    for plot in PLOTS:
        box = page.locator(f"#{plot} .main-svg").first.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 391, plot
    page.set_viewport_size({"width": 1280, "height": 800})
