"""The real application in a process of its own, and a real browser."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "tests" / "screenshots"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
NAMES = ("chromium", "chromium-browser", "google-chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("browser")
            item.add_marker("real")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The application as a person starts it."""
    port = _free_port()
    log = tmp_path_factory.mktemp("app") / "app.log"
    url = f"http://127.0.0.1:{port}/"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "app.py", "--port", str(port)],
            cwd=ROOT, stdout=output, stderr=subprocess.STDOUT,
            env=os.environ | {"GRADIO_ANALYTICS_ENABLED": "False"},
        )  # fmt: skip
        try:
            _wait_until_served(url, process, log)
            yield url
        finally:
            process.terminate()
            process.wait(20)
    assert "Traceback" not in log.read_text(), log.read_text()[-3000:]


def _wait_until_served(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    pytest.fail("the page was not served: " + log.read_text())


def _executable() -> str | None:
    """The browser on this machine; None leaves the choice to Playwright."""
    return os.environ.get("KVVIZ_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


#: A number that is none fails a drawing far from where it arose: tell the plot, its state, and who wrote it.
TELL_NAN = """(() => {
  const write = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (String(value).includes("NaN")) {
      const plot = this.closest(".js-plotly-plot");
      const { width, height, margin, _size, _pushmargin } = plot?._fullLayout ?? {};
      const where = [...document.querySelectorAll("[id]")].filter((e) => e.contains(plot)).at(-1)?.id;
      const state = JSON.stringify({ where, width, height, margin, _size, _pushmargin });
      console.error(`${this.tagName} ${name}=${value} ${state} ${new Error().stack}`);
    }
    return write.call(this, name, value);
  };
})()"""


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=_executable(), args=FLAGS)
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def open_page(address: str, browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens the page in a session of its own; no page may log an error or fetch from elsewhere."""
    faults: list[str] = []
    contexts = []

    def open_one(width: int = 1280, height: int = 800, *, locale: str = "en-GB", path: str = "") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="light", locale=locale
        )
        contexts.append(context)
        context.add_init_script(TELL_NAN)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda m: faults.append(f"{m.type}: {m.text}") if m.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(error.stack or str(error)))
        page.on(
            "request", lambda r: faults.append(f"fetched {r.url}") if _is_elsewhere(r.url, address) else None
        )
        page.goto(address + path)
        page.wait_for_selector("#run")
        page.wait_for_function("document.querySelectorAll('.js-plotly-plot').length >= 5")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not faults, "\n".join(faults)


def _is_elsewhere(url: str, address: str) -> bool:
    return not url.startswith((address, "data:", "blob:"))
