"""What the web server adds to the page: a health report and security headers.

Knows gradio's server and the application's state; knows no tab.
"""

from __future__ import annotations

from typing import Any

import gradio as gr
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvviz import __version__
from kvviz.host import Limits
from kvviz.host.memory import resident_bytes
from kvviz.ui.context import AppContext
from kvviz.ui.look import launch_options

HEALTH_PATH = "/health"
#: Gradio's page needs inline scripts and styles; everything else comes from the server itself.
_POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-inline' 'unsafe-eval' blob:",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self' data: blob:",
    "worker-src": "'self' blob:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
}


def security_headers(limits: Limits) -> dict[str, str]:
    """Header -> value. Sites that ``limits`` names may frame the page; a prompt in a link stays here."""
    policy = _POLICY | {"frame-ancestors": " ".join(("'self'", *limits.frame_ancestors))}
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    }


class SecurityHeaders:
    """Adds headers to every answer, streams included."""

    def __init__(self, app: ASGIApp, headers: dict[str, str]) -> None:
        self._app, self._headers = app, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on; the start of an answer gets the headers."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


def health(context: AppContext) -> dict[str, Any]:
    """Model, memory and line; no names of sessions and nobody's words."""
    state = context.loader.state(context.default_model)
    facts, hosting = state.facts, context.hosting
    running, waiting = hosting.line.counts
    return {
        "status": "failed" if state.phase == "failed" else "ok",
        "version": __version__,
        "public": hosting.limits.is_public,
        "model": {
            "name": context.default_model,
            "phase": state.phase,
            "device": facts.device if facts else None,
            "dtype": facts.dtype if facts else None,
            "weights_bytes": facts.weights_bytes if facts else None,
            "weights_hash": facts.weights_hash if facts else None,
            "commit": facts.commit if facts else None,
        },
        "memory": {
            "resident_bytes": resident_bytes(),
            "free_host_bytes": hosting.guard.memory.host(),
            "free_device_bytes": hosting.guard.memory.free(facts)[0] if facts else None,
            "promised_bytes": hosting.guard.promised_bytes,
        },
        "queue": {
            "running": running,
            "waiting": waiting,
            "max_running": hosting.limits.max_running,
            "max_waiting": hosting.limits.max_waiting,
        },
    }


def launch(demo: gr.Blocks, context: AppContext, host: str | None, port: int | None) -> None:
    """Serve the page until it is interrupted."""
    demo.launch(**launch_options(host, port), **server_options(context))


def server_options(context: AppContext) -> dict[str, Any]:
    """Arguments of ``launch`` for the web server."""

    def answer(_: Request) -> JSONResponse:
        return JSONResponse(health(context), headers={"Cache-Control": "no-store"})

    headers = Middleware(SecurityHeaders, headers=security_headers(context.hosting.limits))
    return {"app_kwargs": {"routes": [Route(HEALTH_PATH, answer)], "middleware": [headers]}}
