"""Everybody can use every tab: axe-core, the keyboard, twice the size, a phone, charts to be heard."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.browser import acting
from tests.browser.axe import violations

Open = Callable[..., Page]
TABS = ".kv-tabs > .tab-wrapper button[role=tab]"


def tabs_of(page: Page) -> list[str]:
    return [name.strip() for name in page.locator(TABS).all_inner_texts() if name.strip()]


def open_tab(page: Page, name: str) -> None:
    page.locator(TABS, has_text=name).first.click()
    page.wait_for_timeout(700)


@pytest.fixture(scope="module")
def used(open_page: Open) -> Page:
    """A page after a short run, so that its views are full."""
    page = open_page()
    acting.ask(page, "Name a colour.", tokens=6)
    acting.press_run(page)
    acting.wait_for_state(page, "length", "eos")
    page.wait_for_timeout(1500)
    return page


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_grave_on_any_tab(used: Page, theme: str) -> None:
    if used.evaluate("document.body.classList.contains('dark')") != (theme == "dark"):
        used.click("#theme")
    names = tabs_of(used)
    assert len(names) >= 5
    found = {}
    for name in names:
        open_tab(used, name)
        found[name] = violations(used)
    assert not {name: grave for name, grave in found.items() if grave}
    open_tab(used, names[0])


def test_axe_finds_nothing_grave_in_chinese_and_on_a_phone(open_page: Open) -> None:
    for page in (open_page(path="zh"), open_page(width=390, height=844)):
        assert violations(page) == []


def test_every_chart_says_its_numbers(used: Page) -> None:
    drawn = used.locator(".kv-view:has(.js-plotly-plot .main-svg):visible")
    assert drawn.count() >= 5
    for i in range(drawn.count()):
        chart = drawn.nth(i)
        assert chart.get_attribute("role") == "group"
        assert chart.get_attribute("aria-label")
        spoken = chart.locator(".kv-spoken").text_content() or ""
        assert spoken.strip(), chart.get_attribute("aria-label")
    memory = used.evaluate(
        """() => {
          const node = document.querySelector('#memory .kv-plot');
          const shown = node.calcdata.filter(([p]) => p.trace.visible === true);
          const last = shown.at(-1).at(-1);
          return [node.parentNode.querySelector(".kv-spoken").textContent, last.s ?? last.y];
        }"""
    )
    whole = f"{memory[1]:.4g}".split(".")[0]
    assert whole in memory[0].replace(",", ""), "the last point of the picture is in the text"


def test_the_keyboard_alone_starts_and_stops_a_run(open_page: Open) -> None:
    page = open_page()
    page.locator("#prompt textarea").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("Count.")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "run":
            break
    assert page.evaluate("document.activeElement.id") == "run", "Tab reaches Run"
    outlined = page.evaluate(
        """() => {
          const style = getComputedStyle(document.activeElement);
          return style.outlineStyle !== 'none' || style.boxShadow !== 'none';
        }"""
    )
    assert outlined, "one sees where one is"
    page.keyboard.press("Enter")
    acting.wait_for_state(page, "prefill", "running", "length", "eos")
    page.locator("#stop").focus()
    page.keyboard.press("Enter")
    acting.wait_for_state(page, "stopped", "length", "eos")
    page.locator(f"{TABS}[aria-selected=true]:visible").first.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#atlas-thumbs >> visible=true")


def test_twice_the_size_needs_no_sideways_scrolling(open_page: Open) -> None:
    page = open_page(width=640, height=400)  # 1280 x 800 at 200 %
    for name in tabs_of(page):
        open_tab(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= 640, name


HOSTILE = "${document.title='no'} {{7*7}} {% raw %} <img src=x onerror=\"document.title='no'\"> `${1+1}`"


def test_words_of_a_person_are_never_a_template(open_page: Open) -> None:
    page = open_page()
    title = page.title()
    page.click("#fields-b button")
    page.fill("#overrides-b textarea", HOSTILE)
    page.click("#run")
    assert HOSTILE in acting.wait_for_alert(page), "a refusal repeats what was written, as it stands"
    page.fill("#overrides-b textarea", "")
    acting.ask(page, HOSTILE, tokens=4, chat=False)
    acting.press_run(page)
    acting.wait_for_state(page, "length", "eos")
    page.locator("#strip-a .kv-strip-canvas").focus()
    page.keyboard.press("Home")
    told = ""
    for _ in range(12):  # the prompt's first tokens, one by one
        told += page.inner_text("#strip-a .kv-tip").split("\n")[0]
        page.keyboard.press("ArrowRight")
    assert "${" in told
    assert page.title() == title
    assert page.locator("img[src=x]").count() == 0
