"""The Attention tab: every head at once, one head large, the heads in numbers, and the run replayed.

Lays components out and wires them to handlers; draws nothing itself. It shows the newest run of the page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.ui.atlas import AtlasHandlers
from kvviz.ui.atlas_views import ATLAS
from kvviz.ui.components import live_view, notice_line, token_strip, words
from kvviz.ui.context import AppContext
from kvviz.ui.parts import MODEL_QUEUE, RUNS_AT_ONCE, AtlasParts, Page
from kvviz.ui.rail import AT_ONCE
from kvviz.ui.recompute import RecomputeHandlers
from kvviz.ui.views import LETTERS, empty_records, notice

KEY = "attention"


def build(context: AppContext, page: Page) -> None:
    """Lay the tab out; :func:`wire` follows when all tabs are there."""
    records = empty_records([context.presets.label(name) for name in context.opening])
    values = {name: build(records, context.desks.get(""), "") for name, build in ATLAS.items()}
    views: dict[str, gr.HTML] = {}

    def view(name: str) -> None:
        views[name] = live_view(name.replace("_", "-"), values[name], name.replace("_", "-"))

    with gr.Row(elem_classes=["kv-card", "kv-atlas-bar"]):
        run = gr.Button(text("ui.rail.run"), variant="primary", elem_id="atlas-run", min_width=90, scale=0)
        stop = gr.Button(text("ui.rail.stop"), elem_id="atlas-stop", interactive=False, min_width=80, scale=0)
        with gr.Column(min_width=280):
            view("atlas_replay")
    line = notice_line(notice(), "atlas-notice")
    with gr.Column(elem_classes="kv-card"):
        words(f"<h3>{text('atlas.title.thumbs')}</h3>")
        view("atlas_thumbs")
        look_for("thumbs")
    with gr.Row(elem_classes="kv-atlas-pair"):
        with gr.Column(min_width=300, elem_classes=["kv-card", "kv-atlas-map-card"]):
            words(f"<h3>{text('atlas.title.map')}</h3>")
            busy = notice_line(notice(), "atlas-busy")
            view("atlas_map")
            look_for("map")
        with gr.Column(min_width=300, elem_classes=["kv-card", "kv-atlas-table-card"]):
            words(f"<h3>{text('atlas.title.table')}</h3>")
            view("atlas_table")
    with gr.Row(elem_classes=["kv-pair-wide", "kv-atlas-strips"]):
        for letter in LETTERS:
            low = letter.lower()
            with gr.Column(min_width=300, elem_classes=["kv-card", f"kv-run-{low}"]):
                words(f"<h3>{text('atlas.title.strip', letter=letter)}</h3>")
                name = f"atlas_strip_{low}"
                views[name] = token_strip(values[name], name.replace("_", "-"))
    page.atlas = AtlasParts(run, stop, line, busy, views)


def look_for(name: str) -> None:
    """The line under a view that says what to see in it."""
    words(f'<p class="kv-look"><b>{text("ui.look_for")}</b> {text(f"atlas.look_for.{name}")}</p>')


def wire(context: AppContext, page: Page) -> None:
    """Views ask, handlers answer; the tab's own Run and Stop are wired where the rail's are."""
    assert page.run is not None
    assert page.atlas is not None
    handlers, recompute = AtlasHandlers(context), RecomputeHandlers(context)
    views, run_id = page.atlas.views, page.run.run_id
    asking = [views[name] for name in ATLAS if not name.startswith("atlas_strip")]
    gr.on(
        [view.click for view in asking],
        handlers.act,
        run_id,
        [views[name] for name in ATLAS],
        trigger_mode="multiple",  # every event carries its own data
        **AT_ONCE,
    )
    answer: list[Any] = [page.atlas.recompute_notice, views["atlas_map"]]
    asked = views["atlas_map"].submit(recompute.wish, run_id, answer, trigger_mode="multiple", **AT_ONCE)
    asked.then(
        recompute.fulfil,
        None,
        answer,
        show_progress="hidden",
        api_visibility="private",
        concurrency_id=MODEL_QUEUE,
        concurrency_limit=RUNS_AT_ONCE,
        trigger_mode="multiple",
    )
    views["atlas_map"].stop(recompute.cancel, None, None, trigger_mode="multiple", **AT_ONCE)
    for key, tab in page.tabs.items():
        shown = {"run": page.run.views, KEY: views}.get(key, {})
        tab.select(_entering(handlers, key, tuple(shown)), run_id, list(shown.values()), **AT_ONCE)


def _entering(handlers: AtlasHandlers, key: str, names: tuple[str, ...]) -> Callable[..., list[Any]]:
    """A function of its own for each tab: gradio hands the request to plain functions only."""

    def enter(request: gr.Request, run_id: str) -> list[Any]:
        return handlers.enter(request, key, names, run_id)

    return enter
