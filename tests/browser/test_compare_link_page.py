"""A comparison's link, as people pass it on: set, copied, opened elsewhere, and nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

PROMPT = "Tell me: is <b>this</b> bold? & 東京"
FIELDS = (
    "#tokens-cmp input", "#prompt-cmp textarea", "#cmp-text input", "#cmp-start input", "#cmp-length input",
    "#cmp-skip input", "#preset-cmp-a input", "#preset-cmp-b input", "#preset-cmp-c input",
    "#window-size-cmp-b input",
)  # fmt: skip


def fields(page: Page) -> dict[str, Any]:
    """What stands in the fields that a link carries."""
    return {place: page.input_value(place) for place in FIELDS} | {"chat": page.is_checked("#chat-cmp input")}


def show_b(page: Page) -> None:
    if not page.locator("#window-size-cmp-b input").is_visible():
        page.click("#fields-cmp-b button")
    page.wait_for_selector("#window-size-cmp-b input >> visible=true")


def copy_link(page: Page) -> str:
    """The link as it is on the clipboard; the page shows the same."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#copy-link-cmp")
    page.wait_for_selector("#link-cmp [data-copied=true]")
    link = str(page.evaluate("navigator.clipboard.readText()"))
    assert page.input_value("#link-cmp input") == link
    return link


def test_a_link_brings_a_comparison_back_and_runs_nothing(
    open_page: Callable[..., Page], address: str
) -> None:
    first = open_page()
    first.click("button[role=tab]:has-text('Compare')")
    first.wait_for_selector("#cmp-run >> visible=true")
    first.fill("#prompt-cmp textarea", PROMPT)
    first.set_checked("#chat-cmp input", False)
    first.fill("#tokens-cmp input", "12")
    first.click("#cmp-add")
    first.wait_for_selector("#preset-cmp-c >> visible=true")
    show_b(first)
    first.fill("#window-size-cmp-b input", "16")
    first.press("#window-size-cmp-b input", "Tab")
    first.wait_for_function("document.querySelector('#label-cmp-b').textContent.includes('custom')")
    first.fill("#cmp-length input", "200")
    first.fill("#cmp-skip input", "50")
    first.press("#cmp-skip input", "Tab")
    link = copy_link(first)
    assert link.startswith(address + "?v=1&tab=compare&")
    assert "&length=200&skip=50&a=" in link

    second = open_page()
    second.goto(link)
    second.wait_for_selector("#cmp-notice >> text=press Compare")
    second.wait_for_selector("#preset-cmp-c >> visible=true")
    assert second.is_hidden("#preset-cmp-d")
    show_b(second)
    for place, value in fields(first).items():
        if place != "chat":
            expect(second.locator(place)).to_have_value(value)
    assert not second.is_checked("#chat-cmp input")
    second.wait_for_timeout(1500)
    assert second.get_attribute("#cmp-panel-a .kv-view", "data-state") == "empty", "nothing runs"
    assert second.is_disabled("#cmp-stop")
    assert second.locator("b:has-text('this')").count() == 0, "words stay words"
    assert copy_link(second) == link, "the same comparison has the same link"


def test_a_wrong_link_is_told_in_its_tab(open_page: Callable[..., Page], address: str) -> None:
    page = open_page()
    for query, words in (("n=5&a=full&c=full", "without a gap"), ("text=/etc/passwd", "/etc/passwd")):
        page.goto(f"{address}?v=1&tab=compare&{query}")
        page.wait_for_selector("#cmp-notice [role=alert] >> visible=true")
        expect(page.locator("#cmp-notice")).to_contain_text(words)
        assert page.input_value("#tokens-cmp input") == "64"
        assert page.is_hidden("#preset-cmp-c")
