"""The page behind a proxy that gives it a folder of its site, as lecture servers do."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from gradio_client import Client

from kvviz.host import Limits
from tests.ui.served import served, tiny_context

FOLDER = "/class/kvviz"
_HOP = {"connection", "transfer-encoding", "content-length", "content-encoding", "keep-alive"}


@contextmanager
def proxied(target: str) -> Iterator[str]:
    """Whatever is asked below ``FOLDER`` is asked of ``target``, streams included; nothing else is there."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            if not self.path.startswith(FOLDER):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {k: v for k, v in self.headers.items() if k.lower() not in {*_HOP, "accept-encoding"}}
            headers |= {"X-Forwarded-Host": self.headers["host"], "X-Forwarded-Proto": "http"}
            headers["Accept-Encoding"] = "identity"
            url = target + (self.path.removeprefix(FOLDER) or "/")
            with httpx.stream(self.command, url, headers=headers, content=body, timeout=60) as answer:
                self.send_response(answer.status_code)
                for name, value in answer.headers.items():
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                self.send_header("Connection", "close")
                self.end_headers()
                with suppress(BrokenPipeError, ConnectionResetError):  # who asked has gone
                    for piece in answer.iter_raw():
                        self.wfile.write(piece)
                        self.wfile.flush()
            self.close_connection = True

        do_GET = do_POST = pass_on

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{FOLDER}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(tiny_context(Limits()), root_path=FOLDER) as target, proxied(target) as address:
        yield address


def test_the_page_and_everything_it_names_are_below_the_folder(address: str) -> None:
    page = httpx.get(f"{address}/", timeout=60)
    assert page.status_code == 200
    assert "frame-ancestors" in page.headers["content-security-policy"]
    named = re.findall(r'(?:src|href)="(\./[^"]+)"', page.text)
    assert named
    for name in dict.fromkeys(named):
        assert httpx.get(f"{address}/{name.removeprefix('./')}", timeout=60).status_code == 200, name
    assert httpx.get(f"{address}/config", timeout=60).json()["root"].endswith(FOLDER)
    assert httpx.get(f"{address}/health", timeout=60).json()["status"] == "ok"


def test_a_program_gets_its_answer_through_the_folder(address: str) -> None:
    client = Client(f"{address}/", verbose=False, httpx_kwargs={"timeout": 60})
    got = client.predict("hello", "full", max_new_tokens=3, api_name="/run")
    assert len(got["token_ids"]) >= 1
