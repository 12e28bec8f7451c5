"""A page for each language: which one a visitor gets, what a change keeps, a whole run in Chinese."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from kvviz.catalogue import languages, text
from tests.browser import acting
from tests.browser.conftest import SCREENSHOTS

Open = Callable[..., Page]
CHINESE = "zh-CN"


def language_of(page: Page) -> str:
    """The language that the document says it is in."""
    return str(page.get_attribute("html", "lang"))


def switch_to(page: Page, name: str) -> None:
    """Press the other language in the header and wait for its page."""
    page.click(f"a[data-language={name}]")
    page.wait_for_function(f"document.querySelector('a[data-language={name}]')?.ariaCurrent === 'true'")
    expect(page.locator("#run")).to_have_text(text("ui.rail.run", name))


@pytest.mark.parametrize(
    ("locale", "path", "tag"),
    [
        ("en-GB", "", "en"),
        (CHINESE, "", "zh-Hans"),
        ("en-GB", "zh", "zh-Hans"),
        ("en-GB", "?lang=zh&x=1", "zh-Hans"),
    ],
)
def test_a_visitor_gets_the_page_of_the_language_asked_for_or_else_of_the_browser(
    open_page: Open, locale: str, path: str, tag: str
) -> None:
    page = open_page(locale=locale, path=path)
    page.wait_for_function(f"document.documentElement.lang === '{tag}'")
    name = tag[:2]
    expect(page.locator("#run")).to_have_text(text("ui.rail.run", name))
    assert page.locator("a[data-language][aria-current]").inner_text() == text("language.name", name)
    assert ("x=1" in path) == ("x=1" in page.url)


def test_a_chosen_language_is_remembered_and_the_query_stays(open_page: Open) -> None:
    page = open_page(locale=CHINESE, path="?a=1%2F2#part")
    switch_to(page, "en")
    assert page.url.endswith("/?a=1%2F2#part")
    page.goto(page.url.split("?")[0])
    page.wait_for_selector("#run")
    page.wait_for_function("document.documentElement.lang === 'en'")
    switch_to(page, "zh")
    page.goto(page.url.removesuffix("zh"))
    page.wait_for_function("document.documentElement.lang === 'zh-Hans'")


def test_the_language_changes_where_nothing_can_be_stored(open_page: Open) -> None:
    page = open_page(locale=CHINESE)
    page.evaluate("() => { Storage.prototype.setItem = () => { throw new DOMException('denied') } }")
    switch_to(page, "en")
    assert page.url.endswith("/?lang=en")


@pytest.mark.parametrize(("locale", "word"), [("en-GB", "StreamingLLM"), (CHINESE, "滑动窗口")])
def test_the_glossary_opens_filters_and_closes(open_page: Open, locale: str, word: str) -> None:
    page = open_page(width=390, locale=locale)
    page.click("#glossary")
    rows = page.locator("#kv-glossary dl > div:visible")
    every = rows.count()
    page.screenshot(path=SCREENSHOTS / f"glossary-{locale}.png")
    page.fill("#kv-glossary input", word)
    assert 0 < rows.count() < every
    page.fill("#kv-glossary input", "no such word")
    expect(page.locator("#kv-glossary [data-glossary=none]")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")  # the first may only clear the field
    expect(page.locator("#kv-glossary")).not_to_be_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_whole_run_in_chinese(open_page: Open, width: int) -> None:
    page = open_page(width=width, locale=CHINESE)
    acting.ask(page, "从前有一只猫，", tokens=12, chat=False)
    acting.press_run(page)
    acting.wait_for_state(page, "eos", "length")
    expect(page.locator("#panel-a .kv-status")).to_have_text(
        text("figures.status.length", "zh", generated=12)
    )
    expect(page.locator("#memory")).to_contain_text(text("figures.axis.tokens_seen", "zh"))
    assert text("figures.kind.measured", "zh") in page.inner_text("#panel-a .kv-metrics")
    assert page.locator("nav a:visible").count() == len(languages()), "no other way from page to page"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    page.screenshot(path=SCREENSHOTS / f"chinese-{width}.png", full_page=True)
    page.fill("#tokens input", "0")
    page.click("#run")
    refused = acting.wait_for_alert(page)
    assert any("\u4e00" <= letter <= "\u9fff" for letter in refused)
