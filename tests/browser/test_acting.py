"""Stopping, failing, sharing and attacking the page."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, Route

from tests.browser import acting

HOSTILE = '<img src=x onerror="window.hit=1"> <script>window.hit=2</script> ${7*6} {{7*7}} <b>bold</b>'


def test_the_known_answer_is_given_by_both(open_page: Callable[..., Page]) -> None:
    page = open_page()
    acting.ask(page, "What is the capital of France?", tokens=24)
    acting.press_run(page)
    acting.wait_for_state(page, "eos")
    assert acting.text_of(page, "a") == "The capital of France is Paris."
    assert acting.text_of(page, "b") == "The capital of France is Paris."


def test_stop_keeps_the_text_and_the_next_run_works(open_page: Callable[..., Page]) -> None:
    page = open_page()
    acting.ask(page, "Tell me a very long story about a lighthouse.", tokens=400)
    acting.press_run(page)
    page.wait_for_function(
        "Number(document.querySelector('#panel-a [data-key=generated] dd').textContent) >= 5"
    )
    page.click("#stop")
    acting.wait_for_state(page, "stopped")
    shown, text = acting.generated(page, "a"), acting.text_of(page, "a")
    assert shown < 200
    assert text
    page.wait_for_timeout(1500)
    assert acting.generated(page, "a") == shown, "nothing comes after the stop"
    assert page.is_disabled("#stop")
    acting.ask(page, "What is the capital of France?", tokens=4)
    acting.press_run(page)
    acting.wait_for_state(page, "length")
    assert acting.generated(page, "a") == 4


def test_hostile_words_are_shown_and_run_nothing(open_page: Callable[..., Page]) -> None:
    page = open_page()
    acting.ask(page, f"Repeat exactly: {HOSTILE} {HOSTILE}", tokens=12, chat=False)
    page.click("#fields-a button")
    page.fill("#overrides-a textarea", HOSTILE)
    page.wait_for_function("document.querySelector('#label-a').textContent.includes('is not an override')")
    assert "${7*6}" in page.inner_text("#label-a")
    page.fill("#overrides-a textarea", "")
    page.click("#fields-a button")
    acting.press_run(page)
    acting.wait_for_state(page, "length", "eos")
    labels = ""
    page.focus("#strip-a .kv-strip-canvas")
    page.keyboard.press("Home")
    for _ in range(24):
        labels += page.inner_text("#strip-a .kv-tip-token")
        page.keyboard.press("ArrowRight")
    assert "<img" in labels
    page.fill("#model input", HOSTILE)
    page.press("#model input", "Enter")
    page.click("#run")
    assert "<img src=x" in acting.wait_for_alert(page)
    assert page.evaluate("window.hit") is None
    assert page.locator("img[src=x]").count() == 0


def test_bad_input_is_one_sentence_each_and_loses_nothing(open_page: Callable[..., Page]) -> None:
    page = open_page()
    acting.ask(page, "What is the capital of France?", tokens=4)
    acting.press_run(page)
    acting.wait_for_state(page, "length")
    kept = acting.text_of(page, "a")
    acting.ask(page, "", tokens=4)
    page.click("#run")
    assert acting.wait_for_alert(page)
    assert acting.text_of(page, "a") == kept
    acting.ask(page, "word " * 9000, tokens=4)
    page.click("#run")
    page.wait_for_function("document.querySelector('#run-notice').textContent.includes('8192')")
    acting.ask(page, "Hello", tokens=2)
    page.click("#fields-b button")
    page.fill("#window-size-b input", "0")
    page.click("#run")
    page.wait_for_function("document.querySelector('#run-notice').textContent.includes('window_size')")
    page.fill("#window-size-b input", "128")
    page.fill("#key-b input", "int8:token:g128:absmax")
    page.press("#key-b input", "Enter")
    page.click("#run")
    page.wait_for_function("document.querySelector('#run-notice').textContent.includes('does not divide')")
    assert acting.text_of(page, "a") == kept
    page.fill("#key-b input", "int8:token:g64:absmax")
    page.press("#key-b input", "Enter")
    page.click("#run")
    page.wait_for_function("document.querySelector('#panel-a [data-key=generated] dd').textContent === '2'")
    acting.wait_for_quiet(page)


def test_two_sessions_do_not_mix(open_page: Callable[..., Page]) -> None:
    prompts = ("The capital of France is", "def fibonacci(n):\n    if n")
    pages = [open_page(), open_page()]

    def run_both() -> list[str]:
        for page, prompt in zip(pages, prompts, strict=True):
            acting.ask(page, prompt, tokens=16, chat=False)
            page.click("#run")
        for page in pages:
            acting.wait_for_state(page, "length", "eos")
        return [acting.text_of(page, side) for page in pages for side in "ab"]

    together = run_both()
    assert "Paris" in together[0]
    assert "return" in together[2]
    assert "Paris" not in together[2]
    assert together[0] == together[1]
    assert together[2] == together[3]
    pages[0].reload()
    pages[0].wait_for_selector("#run")
    pages[0].wait_for_selector("#panel-a .kv-empty")
    assert "return" in acting.text_of(pages[1], "a"), "a reload clears its own page alone"


def test_a_list_that_is_open_can_change(open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.click("#fields-b button")
    late: list[Route] = []
    page.route("**/gradio_api/run/**", lambda route: late.append(route))
    page.fill("#block-size-b input", "16")
    page.press("#block-size-b input", "Tab")
    options = page.locator("#key-b [role=option]")
    options.first.wait_for()
    before = options.count()
    page.wait_for_timeout(300)
    assert late
    for route in late:
        route.continue_()
    page.unroute("**/gradio_api/run/**")
    options.first.wait_for(state="detached")
    assert page.evaluate("document.activeElement.closest('#key-b') !== null"), "the focus stays"
    chosen = page.input_value("#key-b input")
    page.keyboard.press("ArrowDown")
    options.first.wait_for()
    offered = [words.strip().removeprefix("✓").strip() for words in options.all_text_contents()]
    assert len(offered) < before
    assert "int4:channel:g16:minmax" in offered
    assert "int4:channel:g64:minmax" not in offered
    assert page.input_value("#key-b input") == chosen
    page.keyboard.press("Escape")
