"""A whole lesson on the page, right and wrong, by link and by keyboard; the lecturer's way through them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page

from kvviz import lessons
from kvviz.units import format_share
from tests.browser import acting
from tests.browser.axe import violations
from tests.browser.conftest import SCREENSHOTS

Open = Callable[..., Page]
WORDS = (
    "#lesson-nav button",
    "#lesson-nav h2",
    ".kv-lesson-total",
    ".kv-lesson-story",
    ".kv-lesson-button",
    ".kv-lesson-source",
    "#lesson-tell p",
    ".kv-lesson-steps button",
    ".kv-lesson-steps small",
)
#: What each step has besides.
STEP_WORDS = {
    "predict": ("#lesson legend", ".kv-lesson-options label span"),
    "observe": (".kv-lesson-asked", ".kv-verdict-box p"),
    "explain": (".kv-lesson-marks li", ".kv-lesson-why p"),
}  # fmt: skip


def at(open_page: Open, query: str, **size: int) -> Page:
    """A page opened by a link."""
    page = open_page(**size)
    address = page.url.split("?")[0]
    page.goto(f"{address}?{query}")
    page.wait_for_selector("#lesson fieldset >> visible=true")
    return page


def predict(page: Page, weight: str, heads: str, repeated: str) -> None:
    """Answer the lesson on sinks and lock it in."""
    page.fill("#lesson [data-question=weight] input", weight)
    page.check(f"#lesson [data-question=heads] [value={heads}]")
    page.check(f"#lesson [data-question=repeated] [value={repeated}]")
    page.click("#lesson [data-id=lock]")
    page.wait_for_selector("#lesson .kv-view[data-locked=true]")


def kinds(page: Page) -> list[str | None]:
    """How the predictions stand."""
    page.wait_for_selector("#lesson .kv-verdict-box")
    return [box.get_attribute("data-kind") for box in page.locator("#lesson .kv-verdict-box").all()]


def measured(name: str, column: str) -> float:
    """The first row of the stored run's first table."""
    table = next(iter(lessons.load(name).tables.values()))
    return float(str(table.column(column)[0]))


@pytest.fixture(scope="module")
def right(open_page: Open) -> Iterator[Page]:
    """The lesson on sinks, predicted right and looked at."""
    page = at(open_page, "lesson=sink")
    predict(page, str(round(100 * measured("sink", "mean_weight"))), "most", "gone")
    page.click("#lesson [data-id=stored]")
    page.wait_for_selector("#lesson-plot-0 .main-svg >> nth=0")
    return page


def test_a_whole_lesson_right(right: Page) -> None:
    assert kinds(right) == ["right"] * 3
    words = right.inner_text("#lesson [data-question=weight] .kv-verdict-words")
    assert format_share(measured("sink", "mean_weight")) in words
    assert right.inner_text(".kv-lesson-source").startswith("stored · SmolLM2-135M-Instruct")
    assert "3 of 3" in right.inner_text(".kv-lesson-total")
    for i in range(2):
        box = right.locator(f"#lesson-plot-{i} .main-svg").first.bounding_box()
        assert box is not None
        assert box["width"] > 250
    assert right.locator("#lesson-tables details").count() == 1, "the numbers in words"
    assert right.is_visible(".kv-lesson-look")
    assert not right.is_visible(".kv-lesson-why")
    right.click("#lesson [data-id=step-explain]")
    assert right.locator(".kv-lesson-why p").count() >= 2
    assert right.is_visible(".kv-lesson-why")
    assert right.locator(".kv-lesson-marks li").count() == 3
    right.click("#lesson [data-id=step-observe]")


def test_a_locked_prediction_cannot_be_changed(right: Page) -> None:
    inputs = right.locator("#lesson fieldset input")
    assert inputs.count() == 7
    assert all(field.is_disabled() for field in inputs.all())
    assert right.locator("#lesson [data-id=lock]").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_can_be_read(right: Page, theme: str) -> None:
    if right.evaluate("document.body.classList.contains('dark')") != (theme == "dark"):
        right.click("#theme")
    right.mouse.move(5, 5)
    right.wait_for_timeout(600)
    SCREENSHOTS.mkdir(exist_ok=True)
    right.screenshot(path=SCREENSHOTS / f"lesson-1280-{theme}.png", full_page=True)
    weak = []
    for step, words in STEP_WORDS.items():
        right.click(f"#lesson [data-id=step-{step}]")
        right.mouse.move(5, 5)
        right.wait_for_timeout(400)
        found = right.evaluate(acting.CONTRAST, [*words] if step == "predict" else [*WORDS, *words])
        weak += [(step, where, round(ratio, 2)) for where, ratio in found if ratio < 4.5]
        assert violations(right) == [], step
    assert not weak
    right.click("#lesson [data-id=step-observe]")


@pytest.mark.parametrize("width", [390, 640])  # a phone; 1280 at 200 % zoom
def test_it_fits_a_narrow_page(right: Page, width: int) -> None:
    right.set_viewport_size({"width": width, "height": 844})
    right.wait_for_timeout(800)
    right.screenshot(path=SCREENSHOTS / f"lesson-{width}.png", full_page=True)
    assert right.evaluate("document.documentElement.scrollWidth") <= width, "no sideways scrolling"
    order = [right.locator(f"#{name}").bounding_box() for name in ("lesson", "lesson-plot-0", "lesson-tell")]
    tops = [box["y"] for box in order if box is not None]
    assert tops == sorted(tops)
    assert len(tops) == 3
    right.set_viewport_size({"width": 1280, "height": 800})


def test_a_whole_lesson_wrong_and_by_keyboard(open_page: Open) -> None:
    page = at(open_page, "lesson=sink")
    page.focus("#lesson [data-question=weight] input")
    page.keyboard.type("99")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # the first option
    assert page.is_checked("#lesson [value=few]")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.is_checked("#lesson [value=stays]")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#lesson .kv-view[data-locked=true]")
    page.wait_for_function("document.activeElement.dataset.id === 'stored'")
    page.keyboard.press("Enter")
    assert kinds(page) == ["wrong"] * 3
    assert "0 of 3" in page.inner_text(".kv-lesson-total")
    assert "99.0 %" in page.inner_text("#lesson [data-question=weight] .kv-verdict-head")
    page.wait_for_function("document.activeElement.dataset.id === 'step-observe'")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.is_visible(".kv-lesson-why"), "the next step is a key away"


def test_what_is_not_answered_is_asked_for(open_page: Open) -> None:
    page = at(open_page, "lesson=sink")
    assert page.is_disabled("#lesson [data-id=stored]")
    page.click("#lesson [data-id=lock]")
    page.wait_for_selector("#lesson-notice [role=alert] >> visible=true")
    assert "Answer every question" in page.inner_text("#lesson-notice")


def test_turning_to_the_next_lesson_changes_the_address(open_page: Open) -> None:
    page = at(open_page, "lesson=sink")
    page.click("#lesson-nav [data-id=next]")
    page.wait_for_selector("#lesson .kv-view[data-lesson=window]")
    assert "lesson=window" in page.url
    assert page.evaluate("document.activeElement.tagName") == "H2"
    assert page.locator("#lesson-nav [aria-current]").inner_text().split("\n")[0].startswith("4")
    page.reload()
    page.wait_for_selector("#lesson .kv-view[data-lesson=window]")


def test_a_live_run_is_judged_by_its_own_numbers(open_page: Open) -> None:
    page = at(open_page, "lesson=sink")
    predict(page, "30", "most", "gone")
    page.click("#lesson [data-id=live]")
    page.wait_for_selector("#lesson [data-id=stop]")
    page.wait_for_selector("#lesson .kv-view[data-source=live]", timeout=180_000)
    source = page.inner_text(".kv-lesson-source")
    assert re.match(r"live · SmolLM2-135M-Instruct, CPU float32, weights b179c952", source)
    assert kinds(page)[1:] == ["right", "right"]


def test_the_lecturer_s_way(open_page: Open) -> None:
    page = at(open_page, "lesson=sink&instructor=1", width=1280, height=720)
    assert (
        page.evaluate("parseFloat(getComputedStyle(document.querySelector('#lesson legend')).fontSize)") >= 20
    )
    page.click("#lesson [data-id=stored]")
    page.wait_for_selector("#lesson-plot-0 .main-svg >> nth=0")
    assert page.locator(".kv-verdict-box").count() == 0, "the answers are held back"
    page.keyboard.press("r")
    assert kinds(page) == ["told"] * 3
    page.screenshot(path=SCREENSHOTS / "lesson-instructor.png")
    page.keyboard.press("PageDown")
    page.wait_for_selector("#lesson .kv-view[data-lesson=window]")
    page.keyboard.press("p")
    page.wait_for_selector("#lesson .kv-view[data-lesson=sink]")
    assert kinds(page) == ["told"] * 3
    page.keyboard.press("r")
    page.wait_for_function("!document.querySelector('.kv-verdict-box')")


def test_a_lesson_in_chinese(open_page: Open) -> None:
    page = open_page()
    page.goto(f"{page.url.split('?')[0].rstrip('/')}/zh?lesson=offload")
    page.wait_for_selector("#lesson .kv-view[data-lesson=offload] fieldset >> visible=true")
    for question, answer in (("total", "same"), ("device", "part"), ("words", "same")):
        page.check(f"#lesson [data-question={question}] [value={answer}]")
    page.click("#lesson [data-id=lock]")
    page.wait_for_selector("#lesson [data-id=stored]:not(:disabled)")
    page.click("#lesson [data-id=stored]")
    assert kinds(page) == ["right"] * 3
    page.wait_for_selector("#lesson-plot-0 .main-svg >> nth=0")
    assert "正确" in page.inner_text("#lesson .kv-verdict-head >> nth=0")
    names = page.text_content("#lesson-tables") or ""
    assert "已卸载" in names, "the stored names are said in Chinese"
    page.screenshot(path=SCREENSHOTS / "lesson-zh.png", full_page=True)


def copied(page: Page) -> str:
    """The lesson's link as it is on the clipboard."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#lesson-nav [data-id=copy]")
    page.wait_for_selector("#lesson-nav [data-id=copy][data-copied=true]")
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_a_lecturer_s_link_brings_the_same_lesson_back(open_page: Open, address: str) -> None:
    first = at(open_page, "lesson=sink&instructor=1&lang=en")
    first.keyboard.press("n")
    first.wait_for_selector("#lesson .kv-view[data-lesson=window]")
    assert "lang=en" in first.url, "what the address says to the page itself stays"
    link = copied(first)
    assert link == f"{address}?v=1&tab=lessons&lesson=window&instructor=1&answers=held"
    assert first.evaluate("document.activeElement.dataset.id") == "copy"

    second = open_page()
    second.goto(link)
    second.wait_for_selector("#lesson .kv-view[data-lesson=window] fieldset >> visible=true")
    second.wait_for_selector("#lesson [data-id=reveal]")
    assert second.is_enabled("#lesson [data-id=stored]"), "an instructor need not predict"
    assert second.get_attribute("#lesson .kv-view", "data-source") == "", "nothing is run"
    assert second.locator("#run-notice [role=alert] >> visible=true").count() == 0
    assert copied(second) == link, "the same lesson has the same link"


def test_after_another_tab_s_link_a_lesson_has_its_own_address(open_page: Open, address: str) -> None:
    page = open_page()
    for tab in ("run", "compare"):
        page.goto(f"{address}?v=1&tab={tab}&n=5&a=full")
        page.wait_for_selector("#run")
        page.click("button[role=tab]:has-text('Lessons')")
        page.click("#lesson-nav [data-id=go-window]")
        page.wait_for_selector("#lesson .kv-view[data-lesson=window]")
        assert page.url == f"{address}?v=1&tab=lessons&lesson=window"
        page.reload()
        page.wait_for_selector("#lesson .kv-view[data-lesson=window] >> visible=true")
        page.wait_for_timeout(500)
        refused = page.locator("#run-notice, #cmp-notice, #lesson-nav").all_inner_texts()
        assert not any("not opened" in words for words in refused), refused


def test_a_wrong_link_is_told_in_the_lessons(open_page: Open, address: str) -> None:
    page = open_page()
    page.goto(f"{address}?v=1&tab=lessons&lesson=<b>nowhere</b>")
    page.wait_for_selector("#lesson-nav [role=alert] >> visible=true")
    assert "<b>nowhere</b>" in page.inner_text("#lesson-nav [role=alert]"), "words stay words"
    assert "saves, arithmetic, sink" in page.inner_text("#lesson-nav [role=alert]")
    page.screenshot(path=SCREENSHOTS / "lesson-refused.png")
