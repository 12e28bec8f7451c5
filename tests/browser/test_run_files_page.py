"""Runs saved in the browser, read offline, and opened on a page whose model is still on its way."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from kvviz import engine
from kvviz.report import MOST_BYTES, Report, to_json
from kvviz.ui.loading import Loader
from tests.browser import acting
from tests.browser.axe import violations
from tests.browser.conftest import SCREENSHOTS
from tests.comparisons import make_comparison
from tests.ui.served import TINY, served, tiny_context

PROMPT = "Sinks, windows and sealed blocks: " * 6
TOKENS = 12
RAIL = ("#save-html-run", "#save-json-run", "#save-csv-run", "#open-run .kv-open", "#run-notice")


class HeldStore:
    """A store whose models do not come until the gate is open."""

    def __init__(self) -> None:
        self.gate, self.asked, self._store = threading.Event(), [], engine.ModelStore()

    def get(self, name: str, **given: Any) -> Any:
        self.asked.append(name)
        assert self.gate.wait(120)
        return self._store.get(name, **given)


@dataclass
class Kept:
    """What one page saved, and what it showed."""

    files: dict[str, Path]
    texts: list[str]
    bytes_shown: str


def opened_page(browser: Browser, address: str) -> Page:
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.set_default_timeout(30_000)
    page.goto(address)
    page.wait_for_selector("#run")
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot').length >= 5")
    return page


@pytest.fixture(scope="module")
def kept(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A run of the tiny model, and its three files."""
    folder, files = tmp_path_factory.mktemp("saved"), {}
    with served(tiny_context()) as address:
        page = opened_page(browser, address)
        page.click("#save-json-run")
        page.wait_for_function(
            "/no run that has ended/.test(document.querySelector('#run-notice').textContent)"
        )
        acting.ask(page, PROMPT, tokens=TOKENS, chat=False)
        page.click("#run")
        acting.wait_for_state(page, "eos", "length")
        for kind in ("json", "html", "csv"):
            with page.expect_download() as download:
                page.click(f"#save-{kind}-run")
            assert download.value.suggested_filename == f"kvviz-run.{kind}"
            files[kind] = folder / f"kvviz-run.{kind}"
            download.value.save_as(files[kind])
        found = Kept(
            files, [acting.text_of(page, side) for side in "ab"], acting.metric(page, "b", "kv_bytes")
        )
        page.context.close()
    return found


@pytest.fixture(scope="module")
def held() -> Iterator[tuple[str, HeldStore]]:
    """A page whose model does not come."""
    store = HeldStore()
    context = replace(tiny_context(), loader=Loader(store))
    context.loader.warm(TINY)
    with served(context) as address:
        yield address, store
        store.gate.set()


@pytest.fixture(scope="module")
def reader(browser: Browser, held: tuple[str, HeldStore], kept: Kept) -> Iterator[Page]:
    """That page, with the saved run opened on it."""
    page = opened_page(browser, held[0])
    page.set_input_files("#open-run input[type=file]", kept.files["json"])
    page.wait_for_function(
        "/Stored, not measured now/.test(document.querySelector('#run-notice').textContent)"
    )
    yield page
    page.context.close()


def test_a_saved_page_works_with_the_network_cut(browser: Browser, kept: Kept) -> None:
    for file in kept.files.values():
        assert 0 < file.stat().st_size < MOST_BYTES
    context = browser.new_context(offline=True)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(kept.files["html"].as_uri())
    assert page.locator("figure svg").count() >= 2
    for shown in (*kept.texts, kept.bytes_shown):
        assert " ".join(shown.split()) in " ".join(page.inner_text("body").split())
    assert asked == [kept.files["html"].as_uri()]
    context.close()


def test_it_is_shown_before_a_model_is_there(reader: Page, held: tuple[str, HeldStore], kept: Kept) -> None:
    assert [acting.text_of(reader, side) for side in "ab"] == kept.texts
    assert acting.metric(reader, "b", "kv_bytes") == kept.bytes_shown
    assert "stored" in reader.inner_text("#panel-a")
    assert "measured" not in reader.inner_text("#panel-a") + reader.inner_text("#panel-b")
    assert acting.strip_count(reader, "a") > len(PROMPT.split())
    assert reader.locator("#stop").is_disabled()
    for plot in ("memory", "tier-map", "tier-steps"):
        reader.wait_for_selector(f"#{plot} .main-svg >> nth=0")
    assert "no attention maps" in reader.locator("#attention").inner_text()
    assert held[1].asked == [TINY], "the page's own, on its way since the start"


def test_it_looks_in_place(reader: Page) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    for theme in ("light", "dark"):
        if reader.evaluate("document.body.classList.contains('dark')") != (theme == "dark"):
            reader.click("#theme")
        for width in (1280, 390):
            reader.set_viewport_size({"width": width, "height": 800})
            reader.mouse.move(5, 5)
            reader.wait_for_timeout(700)
            reader.screenshot(path=SCREENSHOTS / f"run_opened-{width}-{theme}.png", full_page=True)
            assert reader.evaluate("document.documentElement.scrollWidth") <= width, "no sideways scrolling"
        weak = [found for found in reader.evaluate(acting.CONTRAST, list(RAIL)) if found[1] < 4.5]
        assert not weak
        assert violations(reader) == []
    reader.set_viewport_size({"width": 1280, "height": 800})


def test_the_other_tabs_show_it_and_offer_no_recomputing(reader: Page) -> None:
    reader.click("button[role=tab]:has-text('Attention')")
    reader.wait_for_function("/no attention maps/.test(document.querySelector('#atlas-map').textContent)")
    assert reader.locator("#atlas-table tbody tr").count() > 0
    assert reader.locator("#atlas-map canvas >> visible=true").count() == 0
    assert reader.locator("#atlas-map").get_by_text("Recompute the logits").is_hidden()
    reader.screenshot(path=SCREENSHOTS / "run_opened-attention.png", full_page=True)
    reader.click("button[role=tab]:has-text('Offload')")
    reader.wait_for_selector("#offload-timeline .main-svg >> nth=0")
    reader.wait_for_function("/stored/.test(document.querySelector('#offload-tables').textContent)")
    reader.screenshot(path=SCREENSHOTS / "run_opened-offload.png", full_page=True)
    reader.click("button[role=tab]:has-text('Run') >> nth=0")
    reader.wait_for_selector("#run >> visible=true")


def test_what_is_not_two_runs_is_refused_and_changes_nothing(
    reader: Page, kept: Kept, tmp_path: Path
) -> None:
    evil = json.loads(kept.files["json"].read_text(encoding="utf-8"))
    evil["records"][0]["header"] = "####"
    refused = {
        "three.json": (to_json(Report(make_comparison(others=2))), "open it in the Compare tab"),
        "other.html": ("<p>something else</p><script>alert(1)</script>", "holds no report"),
        "evil.json": (json.dumps(evil), "at fault"),
        "large.json": ("x" * (MOST_BYTES + 1), "at most 1,000,000 bytes"),
    }
    for name, (content, words) in refused.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        reader.set_input_files("#open-run input[type=file]", tmp_path / name)
        reader.wait_for_function(
            "(words) => document.querySelector('#run-notice').textContent.includes(words)", arg=words
        )
        assert [acting.text_of(reader, side) for side in "ab"] == kept.texts, name


def test_a_run_takes_its_place_when_the_model_is_there(reader: Page, held: tuple[str, HeldStore]) -> None:
    held[1].gate.set()
    acting.ask(reader, "Again.", tokens=4, chat=False)
    reader.click("#run")
    reader.wait_for_function("/measured/.test(document.querySelector('#panel-a').textContent)")
    acting.wait_for_state(reader, "eos", "length")
    assert "Stored" not in acting.notice(reader)


def test_the_chinese_page_opens_it_in_chinese(
    browser: Browser, held: tuple[str, HeldStore], kept: Kept
) -> None:
    page = opened_page(browser, f"{held[0]}/zh")
    page.set_input_files("#open-run input[type=file]", kept.files["html"])
    page.wait_for_function("/不是现在测得的/.test(document.querySelector('#run-notice').textContent)")
    assert [acting.text_of(page, side) for side in "ab"] == kept.texts
    page.context.close()
