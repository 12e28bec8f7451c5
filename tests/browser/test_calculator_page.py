"""The Calculator tab as a person uses it: at once, without a model, on a desk and on a phone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.browser import acting
from tests.browser.conftest import SCREENSHOTS

WORDS = (
    ".kv-sentence", ".kv-sum-label", ".kv-sum-line", ".kv-claim-said", ".kv-claim-answer", ".kv-verdict",
    "#calc-fit text", "#calc-context text",
)  # fmt: skip


@pytest.fixture(scope="module")
def calc(open_page: Callable[..., Page]) -> Page:
    page = open_page()
    show(page)
    return page


def show(page: Page) -> None:
    tab = page.locator("button[role=tab]", has_text="Calculator")
    if tab.count():
        tab.first.click()
    else:  # a phone has no room for every tab
        page.click(".kv-tabs > .tab-wrapper .overflow-menu > button")
        page.click(".kv-tabs > .tab-wrapper .overflow-dropdown button:has-text('Calculator')")
    page.wait_for_selector("#calc-context .main-svg >> nth=0 >> visible=true")


def wait_for_answer(page: Page, words: str) -> None:
    page.wait_for_function(
        "(w) => document.querySelector('#calc-answers').textContent.includes(w)", arg=words, timeout=10_000
    )


def test_an_answer_follows_every_field(calc: Page) -> None:
    calc.fill("#calc-context-tokens input", "4096")
    calc.fill("#calc-users input", "1")
    wait_for_answer(calc, "one user at 4,096 tokens")
    calc.click("#calc-model input")
    calc.fill("#calc-model input", "Llama-2-7B")
    calc.keyboard.press("Enter")
    wait_for_answer(calc, "Llama-2-7B")
    calc.click("#calc-preset input")
    calc.locator("[role=option]", has_text="Full precision").click()
    wait_for_answer(calc, "2.00 GiB instead of 2.00 GiB")
    calc.click("#calc-gpu input")
    calc.locator("[role=option]", has_text="H200").click()
    wait_for_answer(calc, "141.00 GiB")
    assert calc.input_value("#calc-gpu-gib input") == "141"


def test_a_refusal_takes_the_answer_away(calc: Page) -> None:
    calc.fill("#calc-users input", "0")
    calc.wait_for_selector("#calc-notice [role=alert] >> visible=true")
    assert calc.inner_text("#calc-answers").strip() == ""
    calc.fill("#calc-users input", "2")
    wait_for_answer(calc, "2 users")


@pytest.mark.parametrize("width", [1280, 390])
def test_it_can_be_read(open_page: Callable[..., Page], width: int) -> None:
    page = open_page(width=width)
    show(page)
    for theme in ("light", "dark"):
        if theme == "dark":
            page.click("#theme")
        page.wait_for_timeout(700)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        low = [pair for pair in page.evaluate(acting.CONTRAST, list(WORDS)) if pair[1] < 4.5]
        assert not low, low[:8]
        SCREENSHOTS.mkdir(exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"calculator-{width}-{theme}.png", full_page=True)
