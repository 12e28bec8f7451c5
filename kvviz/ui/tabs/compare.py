"""The Compare tab: one to four configurations on the same tokens, where they part, and what each costs.

Lays components out and wires them to handlers; knows no engine and draws nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.figures.theme import run_letter
from kvviz.ui import compare_views
from kvviz.ui.compare_files import CompareFiles
from kvviz.ui.compare_form import CompareRail, build_rail
from kvviz.ui.compare_handlers import CompareHandlers, MapControls
from kvviz.ui.compare_links import wire_compare_links
from kvviz.ui.compare_views import MAPS, PANELS, VIEWS, MapChoice
from kvviz.ui.components import data_tables, live_plot, notice_line, text_panel, words
from kvviz.ui.context import OPENING_HEAD, AppContext
from kvviz.ui.parts import MODEL_QUEUE, RUNS_AT_ONCE, CompareParts, Page
from kvviz.ui.rail import AT_ONCE
from kvviz.ui.share import build_files, wire_files
from kvviz.ui.views import empty_records, notice

KEY = "compare"
_TO_MAPS = "() => kvviz.reveal('cmp-maps')"


def build(context: AppContext, page: Page) -> None:
    """Lay the tab out and wire it."""
    words(f'<p class="kv-intro">{text("compare.intro")}</p>')
    with gr.Row(elem_classes="kv-main"):
        with gr.Column(scale=0, min_width=320, elem_classes="kv-rail"):
            rail = build_rail(context, page.header.model)
            files = build_files("cmp")
        with gr.Column(scale=1, min_width=0, elem_classes="kv-stage"):
            views = _stage(context)
            controls, line = _maps(views)
    run_id = gr.State("")
    page.compare = CompareParts(rail, views, controls, line, run_id, files)
    handlers = CompareHandlers(context)
    _wire_run(handlers, page.compare, page)
    _wire_files(CompareFiles(context), page.compare)
    _wire_maps(handlers, page.compare)
    assert page.run is not None
    assert page.tab_bar is not None
    wire_compare_links(context, rail, page.run.model_watch, page.tab_bar)


def _stage(context: AppContext) -> dict[str, gr.HTML]:
    """Texts, charts and tables by name."""
    records = empty_records([context.presets.label(name) for name in context.opening])
    shown = compare_views.panels(records, None, has_maps=False)
    views: dict[str, gr.HTML] = {}
    with gr.Row(elem_classes="kv-cmp-panels"):
        for i, name in enumerate(PANELS):
            letter = run_letter(i).lower()
            with gr.Column(min_width=300, elem_classes=["kv-card", f"kv-run-{letter}"]):
                views[name] = text_panel(shown[name], f"cmp-panel-{letter}")
    with gr.Row(elem_classes="kv-cmp-charts"):
        for name, value in compare_views.charts(None).items():
            with _card(name):
                views[name] = live_plot(value, name.replace("_", "-"))
                _look_for(name)
    for name, value in compare_views.tables(None).items():
        views[name] = data_tables(value, name.replace("_", "-"))
    return views


def _card(name: str) -> gr.Column:
    card = gr.Column(min_width=300, elem_classes=["kv-card", f"kv-{name.replace('_', '-')}"])
    with card:
        words(f"<h3>{text(f'compare.title.{name}')}</h3>")
    return card


def _look_for(name: str) -> None:
    words(f'<p class="kv-look"><b>{text("ui.look_for")}</b> {text(f"compare.look_for.{name}")}</p>')


def _maps(views: dict[str, gr.HTML]) -> tuple[MapControls, gr.HTML]:
    """The card of maps: its controls and the line that says what is looked at."""
    opening = MapChoice(layer=OPENING_HEAD[0], head=OPENING_HEAD[1])
    values = compare_views.maps([], opening)
    letters = [(run_letter(i), str(i)) for i in range(2)]
    with gr.Column(elem_classes="kv-card", elem_id="cmp-maps"):
        words(f"<h3>{text('compare.title.maps')}</h3>")
        with gr.Row(elem_classes="kv-tools"):
            first, second = (
                gr.Radio(
                    letters, value=str(at), label=text(f"compare.map.{key}"), elem_id=f"cmp-{key}",
                    elem_classes="kv-radio", min_width=110,
                )
                for at, key in enumerate(("first", "second"))
            )  # fmt: skip
            layer, head = (
                gr.Number(number, label=text(f"ui.view.{key}"), elem_id=f"cmp-{key}", min_width=70)
                for key, number in zip(("layer", "head"), OPENING_HEAD, strict=True)
            )
            row = gr.Number(None, label=text("compare.map.row"), elem_id="cmp-row-number", min_width=90)
            scale = gr.Radio(
                [(text(f"ui.view.scale_{key}"), key) for key in ("log", "linear")], value="log",
                label=text("ui.view.scale"), elem_id="cmp-scale", elem_classes="kv-radio", min_width=120,
            )  # fmt: skip
        line = notice_line(notice(text("compare.map.before")), "cmp-map-notice")
        with gr.Row(elem_classes="kv-cmp-maps"):
            for name in MAPS:
                with gr.Column(min_width=300):
                    views[name] = live_plot(values[name], name.replace("_", "-"))
        _look_for("maps")
    return MapControls(first, second, layer, head, row, scale), line


def _wire_run(handlers: CompareHandlers, parts: CompareParts, page: Page) -> None:
    pending = gr.State("")
    rail: CompareRail = parts.rail
    controls = parts.controls
    begun = rail.run.click(
        handlers.prepare, rail.inputs, [pending, rail.stop, rail.notice], trigger_mode="multiple", **AT_ONCE
    )
    if page.run is not None:
        rail.run.click(lambda: gr.Timer(active=True), None, page.run.model_watch, **AT_ONCE)
    begun.then(
        handlers.stream,
        [pending, *controls.inputs],
        [
            parts.run_id, rail.stop, rail.notice, controls.first, controls.second, controls.row, parts.line,
            *(parts.views[name] for name in VIEWS),
        ],
        show_progress="hidden",
        api_visibility="private",
        concurrency_id=MODEL_QUEUE,
        concurrency_limit=RUNS_AT_ONCE,
        trigger_mode="multiple",
    )  # fmt: skip
    rail.stop.click(handlers.stop, None, rail.stop, **AT_ONCE)


def _wire_files(handlers: CompareFiles, parts: CompareParts) -> None:
    controls, line = parts.controls, parts.rail.notice
    shown = [
        parts.run_id, line, controls.first, controls.second, controls.row, parts.line,
        *(parts.views[name] for name in VIEWS),
    ]  # fmt: skip
    wire_files(parts.files, handlers, parts.run_id, line, [], shown)


def _wire_maps(handlers: CompareHandlers, parts: CompareParts) -> None:
    controls = parts.controls
    inputs = [parts.run_id, *controls.inputs]
    drawn = [parts.line, *(parts.views[name] for name in MAPS)]
    triggers = [control.input for control in controls.inputs]
    gr.on(triggers, handlers.look, inputs, drawn, trigger_mode="always_last", **AT_ONCE)
    for index, name in enumerate(PANELS):
        shown = parts.views[name].click(
            _jumping(handlers, index),
            inputs,
            [controls.first, controls.second, controls.row, *drawn],
            trigger_mode="multiple",
            **AT_ONCE,
        )
        shown.then(None, None, None, js=_TO_MAPS, **AT_ONCE)


def _jumping(handlers: CompareHandlers, index: int) -> Callable[..., list[Any]]:
    """A function of its own for each panel: gradio hands the request to plain functions only."""

    def jump(request: gr.Request, run_id: str, *values: Any) -> list[Any]:
        return handlers.jump(index, request, run_id, *values)

    return jump
