"""The Attention tab over one short real run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser import acting
from tests.browser.conftest import SCREENSHOTS

WORDS = (
    ".kv-atlas-sentences p", ".kv-thumbs-told div", ".kv-map figcaption", ".kv-map-told", ".kv-map-notes",
    ".kv-scale-ticks span", ".kv-scale-name", ".kv-table td", ".kv-table th button", ".kv-table th small",
    ".kv-table-legend summary", ".kv-choice span", ".kv-choice legend", ".kv-check span", ".kv-replay-told",
    ".kv-memory-words", ".kv-memory-token", ".kv-button", "#atlas-run", "#atlas-stop",
)  # fmt: skip
FILLED = """() => {
  const canvas = document.querySelector('.kv-thumbs-canvas');
  const ratio = window.devicePixelRatio;
  const ctx = canvas.getContext('2d');
  const [left, top, layers, heads] = [34, 22, 30, 9];
  const pitch = (canvas.clientWidth - left - 2) / layers;
  let filled = 0;
  for (let l = 0; l < layers; l += 1) for (let h = 0; h < heads; h += 1) {
    const size = Math.floor((pitch - 4) * ratio);
    const [x, y] = [(left + l * pitch + 1) * ratio, (top + h * pitch + 1) * ratio];
    const d = ctx.getImageData(Math.round(x), Math.round(y), size, size).data;
    const seen = new Set();
    for (let i = 0; i < d.length; i += 4) seen.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]);
    if (seen.size >= 2) filled += 1;
  }
  return filled;
}"""


def shown_head(page: Page) -> str:
    return str(page.get_attribute("#atlas-map .kv-view", "data-head"))


def map_sum(page: Page) -> str:
    return str(page.get_attribute("#atlas-map .kv-view", "data-sum"))


def wait_for_head(page: Page, layer: int, head: int) -> None:
    page.wait_for_function(
        "at => document.querySelector('#atlas-map .kv-view').dataset.head === at", arg=f"{layer},{head}"
    )


def ink(page: Page) -> Any:
    """How many pixels of the first large map's own area are drawn."""
    return page.evaluate(
        """() => {
          const c = document.querySelector('.kv-map-stack canvas');
          const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
          let n = 0;
          for (let i = 3; i < d.length; i += 4) n += d[i] > 0;
          return n;
        }"""
    )


def click_thumb(page: Page, layer: int, head: int) -> None:
    at = page.evaluate(
        """([layer, head]) => {
          const pitch = (document.querySelector('.kv-thumbs-canvas').clientWidth - 36) / 30;
          return [34 + (layer + 0.5) * pitch, 22 + (head + 0.5) * pitch];
        }""",
        [layer, head],
    )
    page.locator(".kv-thumbs-canvas").click(position={"x": at[0], "y": at[1]})


@pytest.fixture(scope="module")
def page(open_page: Callable[..., Page]) -> Page:
    """A page on the Attention tab after a short run that was started there."""
    page = open_page()
    acting.ask(page, "Why does the moon look larger near the horizon?", tokens=12)
    acting.small_stack(page)
    page.click("button[role=tab]:has-text('Attention')")
    page.wait_for_selector("#atlas-thumbs .kv-empty >> visible=true")
    assert "press Run" in page.inner_text("#atlas-thumbs .kv-empty")
    assert page.is_hidden("#atlas-map")
    page.click("#atlas-run")
    page.wait_for_function("document.querySelector('.kv-replay-range')?.disabled === false", timeout=120_000)
    wait_for_head(page, 14, 1)
    page.set_default_timeout(15_000)
    return page


def test_every_head_is_drawn(page: Page) -> None:
    assert page.evaluate(FILLED) == 270
    said = page.inner_text(".kv-atlas-sentences")
    assert "of 270 heads" in said
    assert "30 %" in said


def test_a_click_shows_that_head(page: Page) -> None:
    before = map_sum(page)
    click_thumb(page, 3, 5)
    wait_for_head(page, 3, 5)
    page.wait_for_function("s => document.querySelector('#atlas-map .kv-view').dataset.sum !== s", arg=before)
    assert page.get_attribute(".kv-thumbs-canvas", "data-lock") == "3,5,true"
    assert "layer 3, head 5" in page.inner_text(".kv-thumbs-told")


def test_the_keyboard_moves_and_unlocks(page: Page) -> None:
    page.focus(".kv-thumbs-canvas")
    page.keyboard.press("Home")
    wait_for_head(page, 0, 0)
    assert page.evaluate("document.activeElement.matches('.kv-thumbs-canvas:focus-visible')")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    wait_for_head(page, 1, 1)
    page.keyboard.press("Escape")
    assert page.get_attribute(".kv-thumbs-canvas", "data-lock") == "1,1,false"
    page.keyboard.press("Enter")
    assert page.get_attribute(".kv-thumbs-canvas", "data-lock") == "1,1,true"


def test_the_table_sorts_and_locks(page: Page) -> None:
    def column(index: int) -> list[float]:
        cells = page.locator(f"#atlas-table tbody td:nth-child({index})").all_text_contents()
        return [float(cell) for cell in cells]

    assert len(column(3)) == 270
    assert column(3) == sorted(column(3), reverse=True)
    page.click("#atlas-table th button:has-text('entropy')")
    assert column(9) == sorted(column(9), reverse=True)
    page.keyboard.press("Enter")  # the heading keeps the focus
    assert column(9) == sorted(column(9))
    assert page.get_attribute("#atlas-table th:nth-child(9)", "aria-sort") == "ascending"
    row = page.locator("#atlas-table tbody tr").nth(7)
    layer, head = row.get_attribute("data-layer"), row.get_attribute("data-head")
    row.click()
    wait_for_head(page, int(str(layer)), int(str(head)))
    locked = page.locator("#atlas-table tr.kv-locked")
    assert (locked.get_attribute("data-layer"), locked.get_attribute("data-head")) == (layer, head)


def test_the_replay_changes_strip_map_and_memory(page: Page) -> None:
    click_thumb(page, 14, 1)
    wait_for_head(page, 14, 1)
    cells, whole = acting.strip_count(page, "a"), ink(page)
    count = "document.querySelector('#atlas-strip-a .kv-view').dataset.count"
    full = int(page.evaluate(count))
    memory = page.inner_text("#atlas-replay .kv-memory-total >> nth=0")
    page.focus(".kv-replay-range")
    page.keyboard.press("Home")
    page.wait_for_function(f"Number({count}) === {full - 11}")
    assert "prompt's last row" in page.inner_text(".kv-replay-told")
    assert ink(page) < whole, "rows after the step are hidden"
    assert page.inner_text("#atlas-replay .kv-memory-total >> nth=0") != memory
    page.click("#atlas-replay button:has-text('Play')")
    page.wait_for_function(f"Number({count}) === {full}")
    page.wait_for_function("document.querySelector('#atlas-replay button').textContent.includes('Play')")
    assert ink(page) == whole
    assert acting.strip_count(page, "a") == cells, "the Run tab's strip is left alone"


def test_both_configurations_share_one_scale(page: Page) -> None:
    page.click("#atlas-replay label:has-text('A and B')")
    page.wait_for_function("document.querySelectorAll('.kv-map').length === 2")
    assert "one scale for A and B" in page.inner_text(".kv-scale-name")
    page.click("#atlas-map label:has-text('Hide sinks')")
    page.click("#atlas-map label:has-text('Renormalise')")
    notes = page.inner_text(".kv-map-notes")
    assert "Tokens 0–3 are hidden in every row" in notes
    assert "rescaled" in notes
    page.click("#atlas-map label:has-text('Hide sinks')")
    assert page.is_disabled("#atlas-map .kv-check:has-text('Renormalise') input")
    page.click("#atlas-replay label:has(span:text-is('A'))")
    page.wait_for_function("document.querySelectorAll('.kv-map').length === 1")


def test_an_exact_tile_is_recomputed_and_labelled(page: Page) -> None:
    page.focus(".kv-map-over")
    for key in ("ArrowLeft", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector(".kv-tile-bar >> visible=true")
    assert "recomputed, exact" in page.inner_text(".kv-tile-bar")
    page.click(".kv-tile-bar button")
    page.wait_for_selector(".kv-tile-bar >> visible=false", state="hidden")


def test_logits_are_recomputed_and_labelled(page: Page) -> None:
    page.click("#atlas-map label:has-text('logits')")
    page.wait_for_function("document.querySelector('.kv-scale-name')?.textContent.includes('logit')")
    assert "recomputed" in page.inner_text(".kv-scale-name")
    page.click("#atlas-map label:has-text('probability')")
    page.wait_for_function("document.querySelector('.kv-scale-name').textContent.includes('weight')")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_can_be_read_and_fits_a_phone(page: Page, theme: str) -> None:
    if page.evaluate("document.body.classList.contains('dark')") != (theme == "dark"):
        page.click("#theme")
    page.mouse.move(5, 5)
    page.wait_for_timeout(500)
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"atlas-1280-{theme}.png", full_page=True)
    found = page.evaluate(acting.CONTRAST, list(WORDS))
    assert [(where, round(ratio, 2)) for where, ratio in found if ratio < 4.5] == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(800)
    page.screenshot(path=SCREENSHOTS / f"atlas-390-{theme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "no sideways scrolling"
    page.set_viewport_size({"width": 1280, "height": 800})
