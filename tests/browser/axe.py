"""axe-core on what a page shows now."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, ViewportSize

from tests.browser.conftest import SCREENSHOTS

PHONE: ViewportSize = {"width": 390, "height": 844}
DESKTOP: ViewportSize = {"width": 1280, "height": 800}
GRAVE = ("serious", "critical")


def axe() -> str:
    """The script, as the Python package carries it."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def violations(page: Page) -> list[str]:
    """What axe-core finds grave in what is visible, with the first places."""
    page.evaluate(axe())
    found: list[dict[str, Any]] = page.evaluate(
        "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations"
    )
    return [
        f"{one['id']}: {[(node['target'], node['failureSummary'][:300]) for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in GRAVE
    ]


def read_in(page: Page, name: str, theme: str) -> None:
    """In one theme: pictures on a wide page and a phone, nothing grave found, no sideways scrolling."""
    page.set_viewport_size(DESKTOP)
    if page.evaluate("document.body.classList.contains('dark')") != (theme == "dark"):
        page.click("#theme")
    page.mouse.move(5, 5)
    page.wait_for_timeout(600)
    SCREENSHOTS.mkdir(exist_ok=True)
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        page.wait_for_timeout(800)
        page.screenshot(path=SCREENSHOTS / f"{name.format(width=size['width'])}.png", full_page=True)
        if size is DESKTOP:
            assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], "no sideways scrolling"
    page.set_viewport_size(DESKTOP)
    page.wait_for_timeout(300)
