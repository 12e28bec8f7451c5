"""The Offload tab after a real run: filled in by its own button, run, and read."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from kvviz.catalogue import text
from kvviz.events import TIMELINE_KINDS
from kvviz.figures.timeline import ALWAYS
from kvviz.timeline import LINKS
from tests.browser import acting
from tests.browser.axe import read_in

Open = Callable[..., Page]
TOKENS = 8
PROMPT = "Write down what a lighthouse keeper sees on a clear winter night, from the sea to the stars. " * 2
#: Lanes as drawn: name, number of bars, the longest in ms.
LANES = """() => document.querySelector('#offload-timeline .kv-plot').calcdata.map((drawn) => {
  const lengths = drawn.map((bar) => bar.s || 0);
  return [drawn[0].trace.name, lengths.filter((ms) => ms > 0).length, Math.max(0, ...lengths)];
})"""


def to_tab(page: Page, name: str, language: str = "en") -> None:
    page.click(f"button[role=tab]:has-text('{text(f'ui.tab.{name}', language)}')")


def offloaded(page: Page, language: str = "en") -> Page:
    """A pair on disk by the tab's own button, with small blocks, run to its end; the tab is in front."""
    to_tab(page, "offload", language)
    page.wait_for_selector("#offload-fill-disk >> visible=true")
    page.click("#offload-fill-disk")
    page.wait_for_selector("#run >> visible=true")
    page.wait_for_function("document.querySelector('#prompt textarea').value.length > 2000")
    acting.ask(page, PROMPT, tokens=TOKENS)
    page.click("#fields-b button")
    for field, value in acting.SMALL_STACK.items():
        page.fill(f"#{field}-b input", value)
    page.press("#block-size-b input", "Tab")
    page.click("#fields-b button")
    acting.press_run(page)
    acting.wait_for_state(page, "eos", "length")
    to_tab(page, "offload", language)
    page.wait_for_selector("#offload-timeline >> visible=true")
    page.click("#offload-shown label >> nth=1")
    page.wait_for_function("document.querySelectorAll('#offload-tables tbody tr').length > 2")
    page.wait_for_timeout(1300)  # the text beside a chart follows it once a second
    return page


@pytest.fixture(scope="module")
def shown(open_page: Open) -> Page:
    return offloaded(open_page())


def test_the_timeline_has_a_lane_for_each_kind_with_its_bars(shown: Page) -> None:
    drawn = {name: (bars, longest) for name, bars, longest in shown.evaluate(LANES)}
    kinds = {text(f"offload.kind.{kind}.name"): kind for kind in TIMELINE_KINDS}
    assert set(drawn) <= set(kinds)
    assert {text(f"offload.kind.{kind}.name") for kind in ALWAYS} <= set(drawn)
    computing, coming = (drawn[text(f"offload.kind.{kind}.name")] for kind in ("compute", "copy_in"))
    assert computing[0] >= 30, "one bar a layer at least"
    assert coming[0] >= 30
    assert all(0 < longest < 10_000 for _, longest in (computing, coming))
    assert shown.locator("#offload-timeline .main-svg").first.is_visible()


def test_overlap_and_bytes_a_token_are_said(shown: Page) -> None:
    said = shown.inner_text("#offload-said")
    assert f"step {TOKENS - 1} of {TOKENS - 1}" in said
    assert re.search(r"Overlap \d+(\.\d)? %", said)
    assert re.search(r"for each token: [\d.]+ (KiB|MiB) in", said)
    if "CPU" in shown.inner_text("#model-status"):
        assert "Copies are synchronous on this machine" in said
    rows = [row.split("\t") for row in shown.locator("#offload-tables tbody tr").all_inner_texts()]
    copied = next(row for row in rows if row[0] == text("offload.kind.copy_in.name"))
    assert any(re.fullmatch(r"[\d.]+ (KiB|MiB)", cell) for cell in copied)
    assert "measured" in shown.inner_text("#offload-tables")


def test_links_are_computed_from_bytes_and_say_so(shown: Page) -> None:
    assert "computed from bytes" in shown.inner_text("#offload-links")
    rows = shown.locator("#offload-links tbody tr").all_inner_texts()
    assert len(rows) == len(LINKS)
    assert all(row.startswith(link.name) for row, link in zip(rows, LINKS, strict=True))
    before = shown.inner_text("#offload-link")
    assert "computed from bytes" in before
    shown.click("#offload-link-choice input")
    shown.get_by_role("option", name=LINKS[-1].name, exact=True).click()
    shown.wait_for_function(
        f"document.querySelector('#offload-link').textContent.includes('{LINKS[-1].name}')"
    )
    assert shown.inner_text("#offload-link") != before


def test_the_chart_can_be_heard(shown: Page) -> None:
    spoken = shown.text_content("#offload-timeline .kv-spoken") or ""
    for kind in ALWAYS[:2]:
        assert text(f"offload.kind.{kind}.name") in spoken
    assert re.search(r"\d", spoken)
    view = shown.locator("#offload-timeline .kv-view")
    assert view.get_attribute("aria-label") == text("offload.name.timeline")


def test_the_slider_leads_to_the_prompt_and_a_to_no_offload(shown: Page) -> None:
    assert shown.get_attribute("#offload-step input[type=range]", "max") == str(TOKENS - 1)
    shown.fill("#offload-step input[type=number]", "0")
    shown.press("#offload-step input[type=number]", "Enter")
    shown.wait_for_function("document.querySelector('#offload-said').textContent.includes('the prompt')")
    assert not shown.is_checked("#offload-latest input")
    written = dict((name, bars) for name, bars, _ in shown.evaluate(LANES))
    assert written[text("offload.kind.copy_out.name")] >= 30, "blocks of the prompt were written out"
    shown.click("#offload-shown label >> nth=0")
    shown.wait_for_function(
        "document.querySelector('#offload-timeline .kv-plot').textContent.includes('keeps everything')"
    )
    assert shown.inner_text("#offload-said").strip() == ""
    shown.click("#offload-shown label >> nth=1")
    shown.set_checked("#offload-latest input", True)
    shown.wait_for_function(
        f"document.querySelector('#offload-said').textContent.includes('step {TOKENS - 1} of')"
    )


@pytest.mark.parametrize("language", ["en", "zh"])
def test_it_can_be_read(shown: Page, open_page: Open, language: str) -> None:
    page = shown if language == "en" else offloaded(open_page(path="zh"), "zh")
    for theme in ("light", "dark"):
        read_in(page, f"offload-{{width}}-{theme}-{language}", theme)
