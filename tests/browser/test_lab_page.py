"""Experiments on the page: asked, watched, stopped, read, and taken home."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from kvviz.catalogue import text
from tests.browser import acting
from tests.browser.conftest import SCREENSHOTS

WORDS = (
    ".kv-intro", ".kv-question h2", ".kv-question p", ".kv-finding .kv-view", ".kv-plot-heading", ".kv-look",
    ".kv-result summary", ".kv-result th button", ".kv-result td", ".kv-columns dt", ".kv-columns dd",
    ".kv-lab-line .kv-view", ".kv-lab-plot text",
)  # fmt: skip


def choose(page: Page, name: str) -> None:
    """Show one experiment."""
    page.locator(".kv-experiments button[role=tab]", has_text=text(f"lab.{name}.title")).first.click()
    page.wait_for_selector(f"#lab-{name}-run >> visible=true")


def wait_until_done(page: Page, name: str) -> str:
    """The line under Run when the experiment has ended."""
    page.wait_for_function(
        f"/Done in|stopped/.test(document.querySelector('#lab-{name}-notice').textContent)", timeout=120_000
    )
    return page.inner_text(f"#lab-{name}-notice").strip()


@pytest.fixture(scope="module")
def lab_page(open_page: Callable[..., Page]) -> Iterator[Page]:
    """The first experiment, done on a few short texts."""
    page = open_page()
    page.click("button[role=tab]:has-text('Sink lab')")
    choose(page, "sink")
    assert page.is_hidden("#lab-sink-plot-0 .kv-plot")
    assert page.is_disabled("#lab-sink-csv")
    page.fill("#lab-sink-texts input", "2")
    page.click("#lab-sink-run")
    assert "Done in" in wait_until_done(page, "sink")
    page.wait_for_selector("#lab-sink-plot-0 .main-svg >> nth=0")
    return page


def test_the_finding_is_the_table_s(lab_page: Page) -> None:
    finding = lab_page.inner_text("#lab-sink-finding")
    rows = lab_page.locator("#lab-sink-tables details").first.locator("tbody tr")
    natural = [row for row in rows.all_inner_texts() if row.startswith("natural\t1\t")]
    assert len(natural) == 1
    rate = natural[0].split("\t")[2]
    assert float(rate.removesuffix(" %")) > 50, "most heads of the default model have a sink"
    assert rate in finding


def test_figures_are_drawn(lab_page: Page) -> None:
    for i in range(3):
        box = lab_page.locator(f"#lab-sink-plot-{i} .main-svg").first.bounding_box()
        assert box is not None
        assert box["width"] > 250
        assert box["height"] > 200
    cells = lab_page.evaluate("document.querySelector('#lab-sink-plot-0 .kv-plot').calcdata[0][0].z")
    assert len(cells) == 30
    assert max(max(row) for row in cells) > 0.5


def test_a_heading_sorts_its_table(lab_page: Page) -> None:
    table = lab_page.locator("#lab-sink-tables details").first
    heading = table.locator("th", has_text="mean weight")
    column = heading.evaluate("cell => cell.cellIndex")

    def shown() -> list[float]:
        cells = table.locator(f"tbody td:nth-child({column + 1})").all_inner_texts()
        return [float(cell.removesuffix(" %")) for cell in cells]

    heading.locator("button").focus()
    lab_page.keyboard.press("Enter")
    assert shown() == sorted(shown(), reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    heading.locator("button").click()
    assert shown() == sorted(shown())


def test_files_hold_what_is_shown(lab_page: Page) -> None:
    with lab_page.expect_download() as download:
        lab_page.click("#lab-sink-json")
    assert download.value.suggested_filename == "kvviz-sink.json"
    plain = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert plain["finding"] == lab_page.inner_text("#lab-sink-finding").strip()
    assert plain["settings"]["texts"] == 2
    with lab_page.expect_download() as download:
        lab_page.click("#lab-sink-csv")
    with zipfile.ZipFile(download.value.path()) as archive:
        name = archive.namelist()[0]
        rows = list(csv.DictReader(io.StringIO(archive.read(name).decode())))
    table = next(iter(plain["tables"].values()))
    assert len(rows) == len(table)
    assert [float(row["sink_rate"]) for row in rows] == [row["sink_rate"] for row in table]


def test_stop_ends_an_experiment_and_keeps_the_page_usable(lab_page: Page) -> None:
    choose(lab_page, "positions")
    lab_page.click("#lab-positions-run")
    lab_page.wait_for_function("/left/.test(document.querySelector('#lab-positions-notice').textContent)")
    lab_page.click("#lab-positions-stop")
    assert "stopped" in wait_until_done(lab_page, "positions")
    assert lab_page.is_enabled("#lab-positions-run")
    choose(lab_page, "sink")
    assert lab_page.is_visible("#lab-sink-plot-0 .main-svg >> nth=0")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_can_be_read(lab_page: Page, theme: str) -> None:
    if lab_page.evaluate("document.body.classList.contains('dark')") != (theme == "dark"):
        lab_page.click("#theme")
    lab_page.mouse.move(5, 5)
    lab_page.wait_for_timeout(600)
    SCREENSHOTS.mkdir(exist_ok=True)
    lab_page.screenshot(path=SCREENSHOTS / f"lab-1280-{theme}.png", full_page=True)
    weak = [
        (where, round(ratio, 2))
        for where, ratio in lab_page.evaluate(acting.CONTRAST, list(WORDS))
        if ratio < 4.5
    ]
    assert not weak
    lab_page.set_viewport_size({"width": 390, "height": 844})
    lab_page.wait_for_timeout(800)
    lab_page.screenshot(path=SCREENSHOTS / f"lab-390-{theme}.png", full_page=True)
    assert lab_page.evaluate("document.documentElement.scrollWidth") <= 390, "no sideways scrolling"
    lab_page.set_viewport_size({"width": 1280, "height": 800})
    lab_page.wait_for_timeout(300)
