"""Many clients at once against a page on this machine: who fails, who gets another's answer, who waits?

Starts a page of its own on the loopback (or takes ``--url`` of one there), and ends by itself. For example:

    python tests/load.py --clients 20 --tokens 16
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from gradio_client import Client

ROOT = Path(__file__).resolve().parent.parent
MOST_CLIENTS, MOST_TOKENS, MOST_SECONDS = 64, 64, 540
PRESETS = ("full", "sinks-window", "kivi-4", "full-stack")


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call came to. ``error`` is empty when it was answered with its own prompt and settings."""

    client: int
    total_s: float
    waited_s: float
    tokens: tuple[int, ...]
    error: str


def ask(address: str, number: int, tokens: int) -> Answer:
    """One call of one client. Clients 2n and 2n + 1 ask the same, so their answers must be the same."""
    prompt = f"Client pair {number // 2} counts to {7 * (number // 2) + 3}. What comes next?"
    preset = PRESETS[number // 2 % len(PRESETS)]
    begin = time.monotonic()
    try:
        client = Client(address, verbose=False, httpx_kwargs={"timeout": MOST_SECONDS})
        got = client.predict(prompt, preset, max_new_tokens=tokens, api_name="/run")
    except Exception as error:  # noqa: BLE001  every failure counts, whatever its kind
        return Answer(number, time.monotonic() - begin, 0, (), f"{type(error).__name__}: {error}")
    own = got["config"]["prompt"] == prompt and got["config"]["label"] == preset
    total_s, waited_s = time.monotonic() - begin, got["waited_ms"] / 1000
    return Answer(number, total_s, waited_s, tuple(got["token_ids"]), "" if own else "another's answer")


def put_under_load(address: str, clients: int, tokens: int) -> list[Answer]:
    """All clients at the same time, each in a thread of its own with a session of its own."""
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(ask(address, n, tokens)), daemon=True)
        for n in range(clients)
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + MOST_SECONDS
    for thread in threads:
        thread.join(max(0, end - time.monotonic()))
    return sorted(answers, key=lambda answer: answer.client)


def problems(answers: list[Answer], clients: int) -> list[str]:
    """What went wrong, a line each; empty when nothing did."""
    found = [f"client {answer.client}: {answer.error}" for answer in answers if answer.error]
    if len(answers) < clients:
        found.append(f"{clients - len(answers)} clients were not answered in {MOST_SECONDS} s")
    by_number = {answer.client: answer for answer in answers if not answer.error}
    for number in range(0, clients - 1, 2):
        pair = by_number.get(number), by_number.get(number + 1)
        if pair[0] and pair[1] and pair[0].tokens != pair[1].tokens:
            found.append(f"clients {number} and {number + 1} asked the same and were told different things")
    return found


def report(answers: list[Answer]) -> str:
    """Waiting and total times of those that were answered."""
    good = [answer for answer in answers if not answer.error]
    if not good:
        return "nobody was answered"
    lines = []
    for name in ("waited_s", "total_s"):
        times = sorted(getattr(answer, name) for answer in good)
        lines.append(f"{name}: least {times[0]:.2f}, median {median(times):.2f}, most {times[-1]:.2f}")
    tokens = sum(len(answer.tokens) for answer in good)
    lines.append(f"{len(good)} of {len(answers)} answered, {tokens} tokens")
    return "\n".join(lines)


@contextmanager
def page(model: str | None) -> Iterator[str]:
    """``app.py`` on a free port of the loopback while the block runs."""
    from tests.ui.served import free_port

    port = free_port()
    command = [sys.executable, "app.py", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--model", model] if model else []
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, env=os.environ | {"GRADIO_ANALYTICS_ENABLED": "False"}
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(address, process)
        yield address
    finally:
        process.terminate()
        process.wait(20)


def _wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    import json

    end = time.monotonic() + 180
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"the page ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
                if json.load(answer)["model"]["phase"] == "ready":
                    return
        except OSError:
            pass
        time.sleep(0.5)
    raise SystemExit("the page was not ready in time")


def on_loopback(address: str) -> str:
    """``address`` if it is one of this machine.

    Raises:
        ValueError: it is not; other people's pages are not to be put under load.
    """
    if urlsplit(address).hostname not in ("127.0.0.1", "localhost", "::1"):
        raise ValueError(f"{address} is not on this machine")
    return address


def main() -> int:
    """0 when all were answered with their own; else 1, and what went wrong on stderr."""
    parser = argparse.ArgumentParser(prog="load.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", type=on_loopback, help="a page on this machine (default: start one)")
    parser.add_argument("--model", help="model of the page that is started")
    parser.add_argument("--clients", type=int, default=20, choices=range(1, MOST_CLIENTS + 1), metavar="N")
    parser.add_argument("--tokens", type=int, default=16, choices=range(1, MOST_TOKENS + 1), metavar="N")
    given: Any = parser.parse_args()
    with page(given.model) if not given.url else _given(given.url) as address:
        answers = put_under_load(address, given.clients, given.tokens)
    sys.stdout.write(report(answers) + "\n")
    found = problems(answers, given.clients)
    sys.stderr.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


@contextmanager
def _given(address: str) -> Iterator[str]:
    yield address


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    raise SystemExit(main())
