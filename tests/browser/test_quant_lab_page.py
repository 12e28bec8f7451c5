"""From a scheme that was measured to a run that uses it."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page

from tests.browser.conftest import SCREENSHOTS
from tests.browser.test_lab_page import choose, wait_until_done

CHOSEN = ("INT8 by token", "INT4, K by channel")


def test_a_point_of_the_pareto_plot_opens_in_the_run_tab(open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.click("button[role=tab]:has-text('Quant lab')")
    choose(page, "quality")
    for box in page.locator("#lab-quality-schemes label").all():
        box.locator("input").set_checked(box.inner_text().strip() in CHOSEN)
    page.fill("#lab-quality-length input", "330")
    page.fill("#lab-quality-skip input", "250")
    page.click("#lab-quality-run")
    assert "Done in" in wait_until_done(page, "quality")
    page.wait_for_selector("#lab-quality-plot-0 .main-svg >> nth=0")
    rows = page.locator("#lab-quality-tables tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == list(CHOSEN)
    page.screenshot(path=SCREENSHOTS / "quant-lab.png", full_page=True)
    page.locator("#lab-quality-plot-0").scroll_into_view_if_needed()
    at = page.evaluate(
        """() => {
          const node = document.querySelector('#lab-quality-plot-0 .kv-plot');
          const box = node.getBoundingClientRect();
          const { xaxis, yaxis } = node._fullLayout;
          const points = node.calcdata.find(([first]) => first.trace.customdata);
          const { x, y } = points[points[0].trace.customdata.indexOf('INT4, K by channel')];
          return [box.left + xaxis._offset + xaxis.c2p(x), box.top + yaxis._offset + yaxis.c2p(y)];
        }"""
    )
    page.mouse.click(*at)
    page.wait_for_selector("#run >> visible=true")
    page.wait_for_function("document.querySelector('#key-b input').value === 'int4:channel:g64:minmax'")
    assert page.input_value("#value-b input") == "int4:token:g64:minmax"
    assert "custom" in page.inner_text("#label-b")
    page.click("button[role=tab]:has-text('Quant lab')")
    page.locator("#lab-quality-choice input").click()
    page.locator("#lab-quality-choice [role=option]", has_text=CHOSEN[0]).click()
    page.click("#lab-quality-open")
    page.wait_for_function("document.querySelector('#key-b input').value === 'int8:token:g64:absmax'")
