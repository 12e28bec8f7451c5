"""Every lesson in each of its steps is one screen of a projector, in both languages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from kvviz.lessons import Estimate, lesson, lesson_keys

SCREEN = {"width": 1280, "height": 800}
#: The smallest type that a lesson may have.
LEAST_FONT_PX = 12
#: (font size, words) of the smallest words that are seen, but for the letters inside pictures.
SMALLEST = """() => {
  const walker = document.createTreeWalker(document.querySelector("#lesson-card"), NodeFilter.SHOW_TEXT);
  let least = [99, ""];
  for (let node; (node = walker.nextNode()); ) {
    const at = node.parentElement;
    if (!node.textContent.trim() || !at.getClientRects().length) continue;
    if (at.closest("svg, .kv-spoken, style")) continue;
    const size = parseFloat(getComputedStyle(at).fontSize);
    if (size < least[0]) least = [size, node.textContent];
  }
  return least;
}"""


def predict(page: Page, key: str) -> None:
    """Answer whatever is asked and lock it in."""
    for question in lesson(key).questions:
        field = f"#lesson fieldset[data-question={question.key}]"
        if isinstance(question, Estimate):
            page.fill(f"{field} input", "40")
        else:
            page.check(f"{field} [value='{question.options[1]}']")
    page.click("#lesson [data-id=lock]")


def height(page: Page) -> float:
    """Of the whole lesson, from its heading to its last line, whose beginning and end fit into the window."""
    page.wait_for_timeout(300)
    box = page.locator("#lesson-card").bounding_box()
    assert box is not None
    for last in ("#lesson-tell", "#lesson-tables", "#lesson"):
        inner = page.locator(last).bounding_box()
        assert inner is None or inner["y"] + inner["height"] <= box["y"] + box["height"] + 1, last
    return box["height"]


@pytest.mark.parametrize("path", ["", "zh"])
def test_every_step_is_one_screen(open_page: Callable[..., Page], path: str) -> None:
    page = open_page(**SCREEN, path=path)
    page.goto(f"{page.url.split('?')[0]}?lesson={lesson_keys()[0]}")
    heights = {}
    for key in lesson_keys():
        page.click(f"#lesson-nav [data-id=go-{key}]")
        page.wait_for_selector(f"#lesson .kv-view[data-lesson={key}] fieldset >> visible=true")
        heights[key, "predict"] = height(page)
        predict(page, key)
        page.wait_for_selector("#lesson [data-id=stored]:not(:disabled) >> visible=true")
        heights[key, "run"] = height(page)
        page.click("#lesson [data-id=stored]")
        page.wait_for_selector("#lesson .kv-verdict-box >> visible=true")
        for i in range(len(lesson(key).figures)):
            page.wait_for_selector(f"#lesson-plot-{i} .main-svg >> nth=0")
        for step in ("predict", "observe", "explain"):
            page.click(f"#lesson [data-id=step-{step}]")
            heights[key, f"{step}, seen"] = height(page)
            least, words = page.evaluate(SMALLEST)
            assert least >= LEAST_FONT_PX, (key, step, words)
        widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1], key
    assert {at: tall for at, tall in heights.items() if tall > SCREEN["height"]} == {}
    assert len(heights) == 5 * len(lesson_keys())
