"""The page where a Space has it: in a frame of another site, behind a proxy, in a folder of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser

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
            frame = f'<iframe src="{self.path[1:]}" style="width:1200px;height:800px"></iframe>'
            self.wfile.write(frame.encode())

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
