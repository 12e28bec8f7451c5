"""What a person does on the page and reads from it, in the words of the tests."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

#: Small enough that blocks are sealed within a short prompt.
SMALL_STACK = {"window-size": "16", "block-size": "16"}

CONTRAST = """(selectors) => {
  const channels = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const f = [r, g, b].map((v) => linear(v / 255));
    return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2];
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const c = channels(getComputedStyle(at).backgroundColor);
      if (c.length < 4 || c[3] > 0.99) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const selector of selectors) {
    const seen = (n) => n.getClientRects().length && n.textContent.trim();
    const nodes = [...document.querySelectorAll(selector)].filter(seen);
    if (!nodes.length) found.push([selector, 0]);
    for (const node of nodes) {
      const style = getComputedStyle(node);
      const ink = node instanceof SVGElement ? style.fill : style.color;
      const [a, b] = [light(channels(ink)), light(behind(node))];
      found.push([selector, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]);
    }
  }
  return found;
}"""


def ask(page: Page, prompt: str, *, tokens: int, chat: bool = True) -> None:
    """Fill in the request."""
    page.fill("#prompt textarea", prompt)
    page.set_checked("#chat input", chat)
    page.fill("#tokens input", str(tokens))


def small_stack(page: Page) -> None:
    """Give B a small window and small blocks."""
    page.click("#fields-b button")
    for field, value in SMALL_STACK.items():
        page.fill(f"#{field}-b input", value)
    page.press("#block-size-b input", "Tab")
    page.wait_for_function("document.querySelector('#label-b').textContent.includes('custom')")
    page.click("#fields-b button")


def state(page: Page, side: str) -> str:
    """How a configuration's run stands."""
    return str(page.get_attribute(f"#panel-{side} .kv-view", "data-state"))


def wait_for_state(page: Page, *states: str) -> None:
    """Until both runs stand in one of ``states``."""
    page.wait_for_function(
        """(states) => ['a', 'b'].every(
             (s) => states.includes(document.querySelector(`#panel-${s} .kv-view`).dataset.state))""",
        arg=list(states),
        timeout=120_000,
    )


def press_run(page: Page) -> None:
    """Run, and wait until the engine has taken it."""
    page.click("#run")
    wait_for_state(page, "prefill", "running", "eos", "length", "stopped")


def text_of(page: Page, side: str) -> str:
    """The text as shown."""
    return str(page.text_content(f"#panel-{side} .kv-text"))


def metric(page: Page, side: str, key: str) -> str:
    """A number as shown."""
    return page.inner_text(f"#panel-{side} [data-key={key}] dd").strip()


def generated(page: Page, side: str) -> int:
    """How many tokens the panel says there are."""
    shown = metric(page, side, "generated").replace(",", "")
    return int(shown) if shown.isdecimal() else 0


def strip_count(page: Page, side: str) -> int:
    """Cells of a strip."""
    return int(page.get_attribute(f"#strip-{side} .kv-view", "data-count") or 0)


def frames(page: Page, plot: str) -> int:
    """How often a plot was drawn."""
    return int(page.get_attribute(f"#{plot} .kv-plot", "data-frames") or 0)


def heat(page: Page, plot: str) -> Any:
    """What a heatmap holds."""
    return page.evaluate(f"JSON.stringify(document.querySelector('#{plot} .kv-plot').data[0].z)")


def click_cell(page: Page, layer: int, head: int) -> None:
    """Click one cell of the layer x head map."""
    page.locator("#tier-map").scroll_into_view_if_needed()
    at = page.evaluate(
        """([layer, head]) => {
          const node = document.querySelector('#tier-map .kv-plot');
          const box = node.getBoundingClientRect();
          const { xaxis, yaxis } = node._fullLayout;
          return [box.left + xaxis._offset + xaxis.c2p(head), box.top + yaxis._offset + yaxis.c2p(layer)];
        }""",
        [layer, head],
    )
    page.mouse.click(*at)


def notice(page: Page) -> str:
    """The line under the Run button."""
    return page.inner_text("#run-notice").strip()


def wait_for_quiet(page: Page) -> None:
    """Until there is nothing left to say under the Run button."""
    page.wait_for_function("!document.querySelector('#run-notice').textContent.trim()")


def wait_for_alert(page: Page) -> str:
    """Until the page says what is wrong."""
    page.wait_for_selector("#run-notice [role=alert] >> visible=true")
    return notice(page)
