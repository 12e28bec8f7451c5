"""A comparison in the browser: asked, watched, and followed from the mark to the maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from kvviz.presets import preset_label
from kvviz.report import MOST_BYTES
from tests.browser import acting
from tests.browser.axe import read_in
from tests.browser.conftest import SCREENSHOTS

WORDS = (
    ".kv-judged", ".kv-settings", ".kv-note", "#cmp-numbers th button", "#cmp-worst td", "#cmp-map-notice",
    "#cmp-panel-b mark", "#cmp-panel-b .kv-letter",
)  # fmt: skip


def cells(page: Page, plot: str) -> str:
    """What a map holds."""
    return str(acting.heat(page, plot))


@pytest.fixture(scope="module")
def compared(open_page: Callable[..., Page]) -> Iterator[Page]:
    """Full precision and a narrow window, on a short prompt and a short text."""
    page = open_page()
    page.click("button[role=tab]:has-text('Compare')")
    page.wait_for_selector("#cmp-run >> visible=true")
    page.fill("#prompt-cmp textarea", "Write a short story about a lighthouse keeper and the sea.")
    page.fill("#tokens-cmp input", "24")
    page.locator("#preset-cmp-b input").click()
    page.get_by_role("option", name=preset_label("sinks-window"), exact=True).click()
    page.click("#fields-cmp-b button")
    page.fill("#window-size-cmp-b input", "8")
    page.press("#window-size-cmp-b input", "Tab")
    page.wait_for_function("document.querySelector('#label-cmp-b').textContent.includes('custom')")
    page.fill("#cmp-length input", "160")
    page.fill("#cmp-skip input", "32")
    page.press("#cmp-skip input", "Tab")
    page.click("#cmp-run")
    page.wait_for_function(
        "/Done in/.test(document.querySelector('#cmp-notice').textContent)", timeout=150_000
    )
    page.wait_for_selector("#cmp-difference .main-svg >> nth=0")
    return page


def test_verdicts_and_numbers_are_shown(compared: Page) -> None:
    verdict = compared.inner_text("#cmp-panel-b .kv-judged")
    assert "perplexity +" in verdict
    assert "diverges from A at token" in verdict
    assert compared.locator("#cmp-numbers tbody tr").count() == 2
    for chart in ("cmp-quality", "cmp-memory", "cmp-speed", "cmp-nll"):
        assert compared.locator(f"#{chart} .main-svg").first.is_visible()
    assert compared.is_hidden("#cmp-panel-c")
    assert compared.locator("#cmp-worst tbody tr").count() > 0


def test_a_mark_leads_to_the_maps_and_another_layer_is_another_map(compared: Page) -> None:
    mark = compared.locator("#cmp-panel-b .kv-mark-link")
    mark.focus()
    compared.keyboard.press("Enter")
    compared.wait_for_function(
        "document.querySelector('#cmp-map-notice').textContent.includes('chose the first token')"
    )
    compared.wait_for_function("document.querySelector('#cmp-maps').getBoundingClientRect().top < 400")
    assert "D has" not in compared.inner_text("#cmp-map-notice")
    assert "B has evicted" in compared.inner_text("#cmp-map-notice")
    before = [cells(compared, plot) for plot in ("cmp-map-first", "cmp-map-second", "cmp-difference")]
    assert len(set(before)) == 3
    frames = acting.frames(compared, "cmp-difference")
    compared.fill("#cmp-layer input", "3")
    compared.press("#cmp-layer input", "Tab")
    compared.wait_for_function(
        f"Number(document.querySelector('#cmp-difference .kv-plot').dataset.frames) > {frames}"
    )
    after = [cells(compared, plot) for plot in ("cmp-map-first", "cmp-map-second", "cmp-difference")]
    assert all(a != b for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_can_be_read(compared: Page, theme: str) -> None:
    read_in(compared, f"compare-{{width}}-{theme}", theme)
    weak = [
        (where, round(ratio, 2))
        for where, ratio in compared.evaluate(acting.CONTRAST, list(WORDS))
        if ratio < 4.5
    ]
    assert not weak


def test_a_report_is_saved_read_offline_and_opened_again(
    compared: Page, open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """The saved page works with the network cut and loads nothing; opened on a fresh page, its numbers are
    stored and no model is asked."""
    with compared.expect_download() as download:
        compared.click("#save-html-cmp")
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.name == "kvviz-comparison.html"
    assert file.stat().st_size < MOST_BYTES
    shown = compared.inner_text("#cmp-panel-b .kv-judged")

    context = compared.context.browser.new_context(offline=True)  # type: ignore[union-attr]
    alone = context.new_page()
    asked: list[str] = []
    alone.on("request", lambda request: asked.append(request.url))
    alone.goto(file.as_uri())
    assert alone.locator("figure svg").count() >= 3
    assert shown.replace("\n", " ") in alone.inner_text("body").replace("\n", " ")
    assert asked == [file.as_uri()]
    alone.screenshot(path=SCREENSHOTS / "report_page.png", full_page=True)
    context.close()

    page = open_page()
    page.click("button[role=tab]:has-text('Compare')")
    page.wait_for_selector("#open-cmp .kv-open >> visible=true")
    page.set_input_files("#open-cmp input[type=file]", file)
    page.wait_for_function(
        "/Stored, not measured now/.test(document.querySelector('#cmp-notice').textContent)"
    )
    page.wait_for_selector("#cmp-quality .main-svg >> nth=0")
    assert page.inner_text("#cmp-panel-b .kv-judged") == shown
    assert page.locator("#cmp-numbers tbody tr").count() == 2
    page.wait_for_function("/no attention maps/.test(document.querySelector('#cmp-map-notice').textContent)")
    page.screenshot(path=SCREENSHOTS / "compare_opened.png", full_page=True)

    (tmp_path / "other.html").write_text("<p>something else</p>")
    page.set_input_files("#open-cmp input[type=file]", tmp_path / "other.html")
    page.wait_for_function("/holds no report/.test(document.querySelector('#cmp-notice').textContent)")
    assert page.inner_text("#cmp-panel-b .kv-judged") == shown
