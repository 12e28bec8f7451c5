"""A link, as people pass it on: set fields, copy, open elsewhere, nothing runs; a wrong link is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page

PROMPT = "Tell me: is <b>this</b> bold? ${1 + 1} & 東京\n\tnext line"
NUMBERS = (
    "#tokens input",
    "#seed input",
    "#sink-size-a input",
    "#window-size-b input",
    "#block-size-b input",
)
LISTS = (
    "#model input",
    "#preset-a input",
    "#preset-b input",
    "#middle-a input",
    "#key-b input",
    "#value-b input",
)


def fields(page: Page) -> dict[str, Any]:
    """What stands in the fields that a link carries."""
    there = [place for place in (*NUMBERS, *LISTS) if page.locator(place).count()]  # no seed when greedy
    found: dict[str, Any] = {place: page.input_value(place) for place in there}
    return found | {
        "prompt": page.input_value("#prompt textarea"),
        "chat": page.is_checked("#chat input"),
        "sampled": page.is_checked("#decoding input[value=sampled]"),
        "layers": page.input_value("#overrides-b textarea"),
    }


def open_settings(page: Page) -> None:
    for side in "ab":
        if not page.locator(f"#sink-size-{side} input").is_visible():
            page.click(f"#fields-{side} button")
            page.wait_for_selector(f"#sink-size-{side} input >> visible=true")


def copy_link(page: Page) -> str:
    """The link as it is on the clipboard; the page says so and shows the same."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#copy-link-run")
    page.wait_for_selector("#link-run [data-copied=true]")
    link = str(page.evaluate("navigator.clipboard.readText()"))
    assert "on the clipboard" in page.inner_text("#link-run")
    assert page.input_value("#link-run input") == link
    return link


def test_a_link_brings_every_field_back_and_runs_nothing(
    open_page: Callable[..., Page], address: str
) -> None:
    first = open_page()
    open_settings(first)
    first.fill("#prompt textarea", PROMPT)
    first.set_checked("#chat input", False)
    first.fill("#tokens input", "12")
    first.click("#decoding label:has-text('sampled')")
    first.fill("#seed input", "77")
    first.fill("#sink-size-a input", "2")
    first.fill("#window-size-b input", "16")
    first.fill("#block-size-b input", "32")
    first.fill("#overrides-b textarea", "3:none/int8:token:g64:absmax")
    first.press("#overrides-b textarea", "Tab")
    first.wait_for_function("document.querySelector('#label-b').textContent.includes('custom')")
    link = copy_link(first)
    assert link.startswith(address + "?v=1&tab=run&")

    second = open_page()
    second.goto(link)
    second.wait_for_selector("#run-notice >> text=press Run")
    open_settings(second)
    assert fields(second) == fields(first)
    second.wait_for_timeout(1500)
    for side in "ab":
        assert second.get_attribute(f"#panel-{side} .kv-view", "data-state") == "empty", "nothing runs"
    assert second.is_disabled("#stop")
    assert second.locator("b:has-text('this')").count() == 0, "words stay words"
    assert copy_link(second) == link, "the same request has the same link"


def test_a_wrong_link_is_told_and_changes_nothing(open_page: Callable[..., Page], address: str) -> None:
    page = open_page()
    open_settings(page)
    before = fields(page)
    for query, words in (
        ("v=3&n=5", "version"),
        ("v=1&n=5&model=/etc/passwd", "/etc/passwd"),
        ("v=1&n=5&a=<img src=x onerror=alert(1)>", "<img"),
        ("v=1&p=%00", "U+0000"),
    ):
        page.goto(f"{address}?{query}")
        page.wait_for_selector("#run-notice [role=alert]")
        assert words in page.inner_text("#run-notice")
        open_settings(page)
        assert fields(page) == before
