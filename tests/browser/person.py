"""What a person does on the page, and what they see there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page

READY_MS = 90_000
ENDED = ("eos", "length", "stopped", "failed")


class Person:
    """One browser context at the page."""

    def __init__(self, page: Page) -> None:
        self.page = page

    # -- doing -----------------------------------------------------------------------------------

    def wait_for_model(self) -> None:
        """Until the header says what is loaded."""
        self.page.wait_for_function(
            "() => /weights/.test(document.querySelector('#model-status').innerText)", timeout=READY_MS
        )

    def write(self, name: str, words: str) -> None:
        """Replace the content of a field."""
        field = self.page.locator(f"#{name} textarea, #{name} input").first
        field.fill(words)
        field.blur()

    def choose(self, name: str, words: str) -> None:
        """Type into a list that takes one's own words."""
        field = self.page.locator(f"#{name} input").first
        field.fill(words)
        field.press("Enter")
        field.blur()

    def ask(self, prompt: str, *, tokens: int = 16, small_blocks: bool = False) -> None:
        """Fill in a raw prompt; small blocks let even a short text be sealed."""
        self.write("prompt", prompt)
        self.page.locator("#chat input").uncheck()
        self.write("tokens", str(tokens))
        if small_blocks:
            self.open_settings("b")
            self.write("window-size-b", "8")
            self.write("block-size-b", "8")

    def open_settings(self, letter: str) -> None:
        """Unfold a configuration's settings."""
        if not self.page.locator(f"#window-size-{letter} input").first.is_visible():
            self.page.locator(f"#fields-{letter} button").first.click()
            self.page.wait_for_selector(f"#window-size-{letter} input", state="visible")

    def run(self, *, to_the_end: bool = True) -> None:
        """Press Run; wait until the run shown is a new one and, if asked, has ended."""
        self.page.evaluate(
            "document.querySelectorAll('.kv-live-panel .kv-view').forEach(v => v.dataset.state = '')"
        )
        self.page.click("#run")
        if to_the_end:
            self.until(lambda: all(state in ENDED for state in self.states()))

    def until(self, condition: Callable[[], Any], seconds: float = 60) -> None:
        """Wait for something to become true."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"still: {self.states()} {self.notice()!r}"
            self.page.wait_for_timeout(100)

    # -- seeing ----------------------------------------------------------------------------------

    def states(self) -> list[str]:
        """How both runs stand."""
        return [self._panel(letter, "dataset.state") for letter in "ab"]

    def text(self, letter: str) -> str:
        """The text in a panel."""
        return self.page.locator(f"#panel-{letter} .kv-text").inner_text()

    def notice(self) -> str:
        """The line under the buttons."""
        return self.page.locator("#run-notice .kv-notice-text").inner_text()

    def is_error(self) -> bool:
        """True when that line is announced as an error."""
        line = self.page.locator("#run-notice .kv-view")
        return line.get_attribute("role") == "alert" and bool(self.notice())

    def tokens(self, letter: str) -> int:
        """Cells in a token strip."""
        return int(self.page.locator(f"#strip-{letter} .kv-view").get_attribute("data-count") or 0)

    def generated(self) -> int:
        """Tokens that run A has generated, as its panel says."""
        words = self.page.locator("#panel-a [data-key=generated] dd").inner_text()
        digits = "".join(character for character in words if character.isdigit())
        return int(digits or 0)

    def size(self, selector: str) -> tuple[float, float]:
        """Width and height on screen."""
        box = self.page.locator(selector).first.bounding_box()
        return (box["width"], box["height"]) if box else (0, 0)

    def frames(self, plot: str) -> int:
        """How often a plot was drawn."""
        return int(self.page.locator(f"#{plot} .kv-plot").get_attribute("data-frames") or 0)

    def drawn(self, plot: str) -> str:
        """The numbers that a plot shows."""
        script = "n => JSON.stringify((n.data ?? []).map(t => [t.x, t.y, t.z]))"
        return str(self.page.locator(f"#{plot} .kv-plot").evaluate(script))

    def _panel(self, letter: str, what: str) -> str:
        return str(self.page.locator(f"#panel-{letter} .kv-view").evaluate(f"v => v.{what}"))
