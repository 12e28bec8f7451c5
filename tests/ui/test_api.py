"""What a program gets: three endpoints with fixed names and parameters, in the limits of the page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gradio as gr
import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from kvviz import engine
from kvviz.config import CacheConfig, RunConfig
from kvviz.events import TokenGenerated
from kvviz.host import Limits
from kvviz.presets import preset
from kvviz.ui.api import Calls
from kvviz.ui.context import AppContext
from tests.ui.served import served, tiny_context
from tests.ui.test_handlers import wait_for

PARAMETERS = {
    "/run": [
        "prompt", "preset", "max_new_tokens", "use_chat_template", "temperature", "top_p", "seed", "cache",
        "model",
    ],
    "/score": ["text", "corpus", "start", "length", "skip", "preset", "cache", "model"],
    "/presets": [],
}  # fmt: skip
LIMITS = Limits(
    models=("tiny-random-llama",), max_new_tokens=500, max_prompt_chars=1000, max_waiting=1, max_running=1
)


@pytest.fixture(scope="module")
def context() -> AppContext:
    return tiny_context(LIMITS)


@pytest.fixture(scope="module")
def address(context: AppContext) -> Iterator[str]:
    with served(context) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Client:
    return Client(address, verbose=False, httpx_kwargs={"timeout": 60})


def test_three_endpoints_and_nothing_else(address: str) -> None:
    info = httpx.get(f"{address}/gradio_api/info", timeout=60).json()
    named = {
        name: [parameter["parameter_name"] for parameter in endpoint["parameters"]]
        for name, endpoint in info["named_endpoints"].items()
    }
    assert named == PARAMETERS
    assert info["unnamed_endpoints"] == {}
    assert all(endpoint["description"] for endpoint in info["named_endpoints"].values())


def test_a_run_is_the_engine_s(client: Client, context: AppContext) -> None:
    got = client.predict("hello there", "kivi-4", max_new_tokens=5, api_name="/run")
    config = RunConfig("hello there", preset("kivi-4"), max_new_tokens=5)
    model = context.loader.get("tiny-random-llama")
    tokens = [e.token_id for e in engine.run(model, config) if isinstance(e, TokenGenerated)]
    assert got["token_ids"] == tokens
    assert got["status"] in ("length", "eos")
    assert got["waited_ms"] >= 0
    assert got["config"]["prompt"] == "hello there"
    assert CacheConfig.from_dict(got["config"]["cache"]) == preset("kivi-4")


def test_own_settings_take_the_place_of_a_preset(client: Client) -> None:
    settings = preset("sinks-window").to_dict() | {"window_size": 9}
    got = client.predict("hello", max_new_tokens=2, cache=settings, api_name="/run")
    assert got["config"]["cache"] == settings


def test_a_score_is_the_engine_s(client: Client, context: AppContext) -> None:
    got = client.predict(start=10, length=200, skip=50, preset="int4-naive", api_name="/score")
    model = context.loader.get("tiny-random-llama")
    ids = model.encode(engine.load_text("pydoc-topics").text, False)[10:210]
    expected = engine.score(model, ids, preset("int4-naive"), skip=50).to_dict()
    assert {key: got[key] for key in ("ppl", "ppl_full", "kl", "top1", "rows")} == pytest.approx(
        {key: expected[key] for key in ("ppl", "ppl_full", "kl", "top1", "rows")}, rel=1e-6
    )
    own = client.predict("words of my own " * 10, length=100, skip=10, api_name="/score")
    assert own["rows"] == 89
    assert own["corpus"] == "own"


def test_presets_can_be_sent_back(client: Client, context: AppContext) -> None:
    offered = client.predict(api_name="/presets")
    assert [entry["name"] for entry in offered] == list(context.presets.names)
    assert all(CacheConfig.from_dict(entry["cache"]) == preset(entry["name"]) for entry in offered)
    assert all(entry["label"] and entry["note"] for entry in offered)


def test_a_refusal_reaches_the_caller_as_its_sentence(client: Client) -> None:
    with pytest.raises(AppError, match='There is no preset "nope"'):
        client.predict("hello", "nope", api_name="/run")


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"prompt": 12}, "prompt must be text"),
    ({"prompt": None}, "prompt must be text"),
    ({"prompt": ""}, "prompt"),
    ({"max_new_tokens": "9"}, "max_new_tokens must be a whole number"),
    ({"max_new_tokens": True}, "max_new_tokens must be a whole number"),
    ({"max_new_tokens": -1}, "max_new_tokens"),
    ({"max_new_tokens": 501}, "501 new tokens"),
    ({"prompt": "x" * 1001}, "1,001 characters"),
    ({"temperature": float("nan")}, "temperature"),
    ({"top_p": "all"}, "top_p must be a number"),
    ({"seed": -5}, "seed"),
    ({"preset": "../../etc/passwd"}, "no preset"),
    ({"model": "/etc"}, "does not offer"),
    ({"model": "https://example.com/model"}, "does not offer"),
    ({"cache": {"key": ["int4"]}}, "not a quantizer"),
    ({"cache": {"overrides": "all"}}, "cache cannot be read"),
    ({"cache": {"overrides": [{"layer": 0}]}}, "cache cannot be read"),
    ({"cache": {"window_size": 1e9}}, "window_size"),
    ({"cache": {"__class__": 1}}, "no setting called"),
    ({"cache": 5}, "cache cannot be read"),
    ({"cache": [1]}, "no setting called"),
]


@pytest.mark.parametrize(("values", "said"), HOSTILE, ids=[str(values)[:40] for values, _ in HOSTILE])
def test_hostile_values_are_refused_with_a_sentence(
    context: AppContext, values: dict[str, Any], said: str
) -> None:
    with pytest.raises(gr.Error) as refused:
        Calls(context).run_call()(**({"prompt": "hi"} | values), request=SimpleNamespace(session_hash="s"))
    assert said in str(refused.value)


@pytest.mark.parametrize("corpus", ["/etc/passwd", "README.md", "../app.py", "http://example.com"])
def test_a_text_is_named_and_never_a_path(context: AppContext, corpus: str) -> None:
    with pytest.raises(gr.Error, match="choose one of"):
        Calls(context).score_call()(corpus=corpus, request=SimpleNamespace(session_hash="s"))


def test_a_client_that_goes_away_stops_its_run_within_two_tokens(address: str, context: AppContext) -> None:
    config = httpx.get(f"{address}/config", timeout=60).json()
    fn = next(d["id"] for d in config["dependencies"] if d["api_name"] == "run")
    values = ["hello", "full", 500, True, 0, 1, 0, None, ""]
    chosen: list[bool] = []
    compare = context.compare

    def counting(*args: Any, stop: threading.Event, **others: Any) -> Iterator[Any]:
        for event in compare(*args, stop=stop, **others):
            if isinstance(event, TokenGenerated):
                chosen.append(stop.is_set())
            yield event

    object.__setattr__(context, "compare", counting)
    try:
        with httpx.stream("GET", f"{address}/gradio_api/heartbeat/leaving", timeout=None) as heartbeat:
            assert heartbeat.status_code == 200
            asked = {"data": values, "fn_index": fn, "session_hash": "leaving"}
            httpx.post(f"{address}/gradio_api/queue/join", json=asked, timeout=60).raise_for_status()
            wait_for(lambda: len(chosen) >= 3)
        wait_for(lambda: context.hosting.line.counts == (0, 0))
    finally:
        object.__setattr__(context, "compare", compare)
    assert len(chosen) < 500
    assert sum(chosen) <= 2, "tokens after the switch was thrown"
    assert len(context.api_calls) == 0
    assert context.hosting.guard.promised_bytes == 0


def test_health_tells_model_memory_and_line(address: str, client: Client) -> None:
    client.predict("hello", max_new_tokens=1, api_name="/run")
    answer = httpx.get(f"{address}/health", timeout=60)
    assert answer.headers["cache-control"] == "no-store"
    told = answer.json()
    assert told["status"] == "ok"
    assert told["model"]["phase"] == "ready"
    assert told["model"]["weights_bytes"] > 0
    assert told["memory"]["resident_bytes"] > 10**7
    assert told["memory"]["promised_bytes"] == 0
    assert told["queue"] == {"running": 0, "waiting": 0, "max_running": 1, "max_waiting": 1}


def test_security_headers_are_on_every_answer(address: str) -> None:
    for path in ("/", "/health", "/config", "/gradio_api/info", "/nothing-here"):
        headers = httpx.get(address + path, timeout=60).headers
        policy = headers["content-security-policy"]
        assert "object-src 'none'" in policy
        assert "frame-ancestors 'self' https://huggingface.co https://*.hf.space" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert "x-frame-options" not in headers, "it would keep the page out of a Space"


def test_an_upload_is_small(address: str) -> None:
    def upload(size: int) -> int:
        return httpx.post(
            f"{address}/gradio_api/upload", files={"files": ("a.txt", b"x" * size)}, timeout=60
        ).status_code

    assert upload(1_000_000) == 200
    assert upload(1_000_001 + 1024) == 413


@pytest.mark.parametrize("path", ["/etc/passwd", "app.py", "README.md", "kvviz/ui/api.py"])
def test_no_file_is_served_but_what_the_page_needs(address: str, path: str) -> None:
    answer = httpx.get(f"{address}/gradio_api/file={path}", timeout=60)
    assert answer.status_code in (403, 404)
