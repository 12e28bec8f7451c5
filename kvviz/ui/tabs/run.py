"""The Run tab: two configurations side by side, live.

Lays components out and wires them to handlers; knows no engine and draws nothing itself.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.ui.components import live_plot, notice_line, text_panel, token_strip, words
from kvviz.ui.context import OPENING_HEAD, AppContext
from kvviz.ui.handlers import RunHandlers, ViewControls
from kvviz.ui.links import wire_links
from kvviz.ui.parts import MODEL_QUEUE, RUNS_AT_ONCE, AtlasParts, Page, RunParts
from kvviz.ui.rail import AT_ONCE, build_rail
from kvviz.ui.run_files import RunFiles
from kvviz.ui.runs import ViewChoice
from kvviz.ui.share import wire_files
from kvviz.ui.status import watch_model
from kvviz.ui.views import BUILDERS, LETTERS, empty_records, notice, panel

KEY = "run"


def build(context: AppContext, page: Page) -> None:
    """Lay the tab out; :func:`wire` follows when all tabs are there."""
    with gr.Row(elem_classes="kv-main"):
        with gr.Column(scale=0, min_width=320, elem_classes="kv-rail"):
            rail = build_rail(context, page.header.model)
        with gr.Column(scale=1, min_width=0, elem_classes="kv-stage"):
            views = _texts(context)
            host_note = notice_line(notice(), "host-note")
            controls = _charts(context, views)
    watch = watch_model(context, page.header, host_note, rail)
    page.run = RunParts(rail, views, controls, gr.State(""), watch)


def wire(context: AppContext, page: Page) -> None:
    """A run fills the views of whichever tab is visible."""
    assert page.run is not None
    assert page.atlas is not None
    assert page.offload is not None
    run, atlas = page.run, page.atlas
    filled = run.views | atlas.views | page.offload.views | {"notice": atlas.notice, "stop": atlas.stop}
    handlers = RunHandlers(context, tuple(filled))
    shown = [run.run_id, run.rail.stop, run.rail.notice, run.controls.latest, run.controls.step]
    shown += filled.values()
    _wire_run(handlers, run, atlas, shown)
    files = RunFiles(context, handlers)
    wire_files(run.rail.files, files, run.run_id, run.rail.notice, run.controls.inputs, shown)
    _wire_views(handlers, run.run_id, run.views, run.controls)
    wire_links(context, run.rail, run.model_watch)


def _opening(context: AppContext) -> list[Any]:
    return empty_records([context.presets.label(name) for name in context.opening])


def _texts(context: AppContext) -> dict[str, gr.HTML]:
    records = _opening(context)
    views: dict[str, gr.HTML] = {}
    with gr.Row(elem_classes="kv-pair-wide"):
        for i, letter in enumerate(LETTERS):
            low = letter.lower()
            with gr.Column(min_width=300, elem_classes=["kv-card", f"kv-run-{low}"]):
                views[f"panel_{low}"] = text_panel(panel(records, i), f"panel-{low}")
                value = BUILDERS[f"strip_{low}"](records, ViewChoice())
                views[f"strip_{low}"] = token_strip(value, f"strip-{low}")
    _look_for("strip")
    return views


def _look_for(name: str) -> None:
    words(f'<p class="kv-look"><b>{text("ui.look_for")}</b> {text(f"figures.{name}.look_for")}</p>')


def _plot(context: AppContext, views: dict[str, gr.HTML], view: str) -> None:
    value = BUILDERS[view](_opening(context), ViewChoice())
    views[view] = live_plot(value, view.replace("_", "-"))


def _charts(context: AppContext, views: dict[str, gr.HTML]) -> ViewControls:
    with gr.Row(elem_classes="kv-pair-wide"):
        with gr.Column(min_width=300, elem_classes="kv-stack"):
            with _card("memory"):
                _plot(context, views, "memory")
                _look_for("memory")
            with _card("quant_error"):
                with gr.Row(elem_classes="kv-tools"):
                    measure = _radio("measure", ("relative", "snr_db"))
                _plot(context, views, "quant_error")
                _look_for("quant_error")
            with _card("tier_mass_steps"):
                _plot(context, views, "tier_steps")
                _look_for("tier_mass_steps")
        with gr.Column(min_width=300, elem_classes="kv-stack"):
            with _card("tier_mass"):
                with gr.Row(elem_classes="kv-tools"):
                    shown = _radio("shown", ("0", "1"))
                    group = _radio("group", ("sink", "window", "middle"))
                with gr.Row(elem_classes="kv-tools"):
                    latest, step = _steps()
                _plot(context, views, "tier_map")
                _look_for("tier_mass")
            with _card("attention"):
                with gr.Row(elem_classes="kv-tools"):
                    layer, head = (
                        gr.Number(number, label=text(f"ui.view.{name}"), elem_id=name, min_width=70)
                        for name, number in zip(("layer", "head"), OPENING_HEAD, strict=True)
                    )
                    scale = _radio("scale", ("log", "linear"))
                _plot(context, views, "attention")
                _look_for("attention")
    return ViewControls(shown, group, latest, step, layer, head, scale, measure)


def _steps() -> tuple[gr.Checkbox, gr.Slider]:
    latest = gr.Checkbox(True, label=text("ui.view.latest"), elem_id="latest", min_width=140)
    label = text("ui.view.step")
    step = gr.Slider(0, 1, value=0, step=1, label=label, elem_id="step", buttons=[], min_width=180)
    return latest, step


def _card(name: str) -> gr.Column:
    card = gr.Column(min_width=300, elem_classes="kv-card")
    with card:
        words(f"<h3>{text(f'figures.{name}.title')}</h3>")
    return card


def _radio(name: str, values: tuple[str, ...]) -> gr.Radio:
    choices = [(text(f"ui.view.{name}_{value}"), value) for value in values]
    return gr.Radio(
        choices,
        value=values[0],
        label=text(f"ui.view.{name}"),
        elem_id=name,
        elem_classes="kv-radio",
        min_width=150,
    )


def _wire_run(handlers: RunHandlers, run: RunParts, atlas: AtlasParts, shown: list[Any]) -> None:
    pending = gr.State("")
    rail, controls = run.rail, run.controls

    def prepare(request: gr.Request, *values: Any) -> list[Any]:
        laid, stop, line = handlers.prepare(request, *values)
        return [laid, stop, line, stop, line]

    begun = gr.on(
        [rail.run.click, atlas.run.click],
        prepare,
        [*controls.inputs, *rail.inputs],
        [pending, rail.stop, rail.notice, atlas.stop, atlas.notice],
        trigger_mode="multiple",
        **AT_ONCE,
    )
    pressed = [rail.run.click, atlas.run.click]
    gr.on(pressed, lambda: gr.Timer(active=True), None, run.model_watch, **AT_ONCE)
    begun.then(
        handlers.stream,
        pending,
        shown,
        show_progress="hidden",
        api_visibility="private",
        concurrency_id=MODEL_QUEUE,
        concurrency_limit=RUNS_AT_ONCE,
        trigger_mode="multiple",
    )

    def stop(request: gr.Request) -> list[Any]:
        return [handlers.stop(request)] * 2

    gr.on([rail.stop.click, atlas.stop.click], stop, None, [rail.stop, atlas.stop], **AT_ONCE)


def _wire_views(
    handlers: RunHandlers, run_id: gr.State, views: dict[str, gr.HTML], controls: ViewControls
) -> None:
    drawn = [views[name] for name in BUILDERS]
    inputs = [run_id, *controls.inputs]
    triggers = [
        control.input
        for control in (
            controls.shown, controls.group, controls.latest, controls.layer, controls.head,
            controls.scale, controls.measure,
        )
    ]  # fmt: skip
    gr.on(triggers, handlers.look, inputs, drawn, trigger_mode="always_last", **AT_ONCE)
    controls.step.input(
        handlers.scrub, inputs, [controls.latest, *drawn], trigger_mode="always_last", **AT_ONCE
    )
    views["tier_map"].click(
        handlers.pick,
        inputs,
        [controls.layer, controls.head, *drawn],
        trigger_mode="multiple",  # "always_last" repeats the first click's cell, not the last one's
        **AT_ONCE,
    )
