"""The page where a Space has it: in a frame of another site, behind a proxy, in a folder of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, Frame, Page

from kvviz.host import Limits
from tests.ui.served import served, tiny_context
from tests.ui.test_proxy import FOLDER, proxied

FRAMERS = ("http://127.0.0.1:*",)


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Another site, whose pages are a frame around the address in their path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            frame = f'<iframe src="{escape(self.path[1:])}" style="width:1200px;height:800px"></iframe>'
            self.wfile.write(f"{frame}<textarea></textarea>".encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("path", ["/", "/zh"])
def test_a_run_in_a_frame_of_another_site_behind_a_proxy(browser: Browser, site: str, path: str) -> None:
    context = tiny_context(Limits(frame_ancestors=FRAMERS))
    with served(context, root_path=FOLDER) as target, proxied(target) as address:
        page = browser.new_page()
        page.goto(f"{site}/{address}{path}")
        framed = page.frame_locator("iframe")
        framed.locator("#memory .js-plotly-plot").wait_for()
        framed.locator("#tokens input").fill("4")
        framed.locator("#run").click()
        page.frames[1].wait_for_function(
            "['length', 'eos'].includes(document.querySelector('#panel-a .kv-view').dataset.state)"
        )
        page.close()


def test_other_sites_may_not_frame_it(browser: Browser, site: str) -> None:
    with served(tiny_context(Limits())) as address:
        page = browser.new_page()
        page.goto(f"{site}/{address}/")
        page.wait_for_timeout(1500)
        assert page.frame_locator("iframe").locator("#run").count() == 0
        page.close()


#: Tab by tab: a link, its copy button, where it stands by hand, and what says that the page is restored.
LINKS = {
    "run": ("n=7", "#copy-link-run", "#link-run", "#tokens input", "7"),
    "compare": ("n=9", "#copy-link-cmp", "#link-cmp", "#tokens-cmp input", "9"),
    "lessons": (
        "lesson=window&instructor=1&answers=held",
        "#lesson-nav [data-id=copy]",
        "#lesson-nav",
        "",
        "",
    ),
}
SELECTED = "(({ value, selectionStart: a, selectionEnd: b }) => value.slice(a, b))(document.activeElement)"
#: A browser in which no page may write to the clipboard in any way.
CLOSED = "document.execCommand = () => false"


def is_restored(page: Page | Frame, tab: str) -> bool:
    """Whether the page shows what the tab's link says, once it is there."""
    _, copy, _, field, value = LINKS[tab]
    page.wait_for_selector(f"{copy} >> visible=true", timeout=60_000)
    if tab == "lessons":
        page.wait_for_selector("#lesson .kv-view[data-lesson=window]")
        return page.is_visible("#lesson [data-id=reveal]")
    page.wait_for_function(
        "([field, value]) => document.querySelector(field)?.value === value", arg=[field, value]
    )
    return page.input_value(field) == value


@pytest.mark.parametrize("is_closed", [False, True], ids=["as it is", "closed"])
@pytest.mark.parametrize("tab", list(LINKS))
def test_a_link_in_a_frame_restores_and_can_be_had(
    browser: Browser, site: str, tab: str, is_closed: bool
) -> None:
    query, copy, place, *_ = LINKS[tab]
    context = tiny_context(Limits(frame_ancestors=FRAMERS))
    with served(context, root_path=FOLDER) as target, proxied(target) as address:
        page = browser.new_page()
        if is_closed:
            page.add_init_script(CLOSED)
        page.goto(f"{site}/{address}/?v=1&tab={tab}&{query}")
        framed = page.frames[1]
        assert is_restored(framed, tab)
        framed.evaluate(
            "navigator.clipboard.writeText('by the page').then(() => { throw Error('open'); }, () => 0)"
        )
        framed.click(copy)
        told = framed.wait_for_selector(f"{place} [data-copied]")
        assert told is not None
        if told.get_attribute("data-copied") == "true":
            page.focus("textarea")
            page.keyboard.press("Control+V")
            link = page.input_value("textarea")
        else:
            field = f"{place} .kv-share-address"
            link = framed.input_value(field)
            selected = framed.evaluate(SELECTED)
            assert framed.is_visible(field)
            assert selected == link, "ready to be copied by hand"
        assert (told.get_attribute("data-copied") == "false") >= is_closed
        assert link.startswith(f"{address}/?v=1&tab={tab}&")
        second = browser.new_page()
        second.goto(link)
        assert is_restored(second, tab)
        second.close()
        page.close()
