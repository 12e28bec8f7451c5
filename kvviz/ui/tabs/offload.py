"""The Offload tab: what moved when in a step, what that cost, and what another link would take.

Lays components out and wires them to handlers; draws nothing itself. It shows the newest run of the Run tab.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.timeline import LINKS, USUAL_LINK
from kvviz.ui.components import data_tables, live_plot, live_view, words
from kvviz.ui.context import AppContext
from kvviz.ui.desk import OffloadChoice
from kvviz.ui.offload_handlers import KEY, TRIED, OffloadHandlers
from kvviz.ui.offload_views import OFFLOAD
from kvviz.ui.parts import OffloadParts, Page
from kvviz.ui.rail import AT_ONCE
from kvviz.ui.views import empty_records

__all__ = ["KEY", "build"]


def build(context: AppContext, page: Page) -> None:
    """Lay the tab out and wire it."""
    records = empty_records([context.presets.label(name) for name in context.opening])
    values = {name: build(records, OffloadChoice()) for name, build in OFFLOAD.items()}
    words(f'<p class="kv-intro">{text("offload.intro")}</p>')
    controls, link = _stage(values)
    with gr.Column(elem_classes="kv-card"):
        words(f"<h3>{text('ui.offload.fill')}</h3>")
        with gr.Row(elem_classes="kv-lab-actions"):
            buttons = {
                name: gr.Button(
                    text(f"ui.offload.fill_{name}"), size="sm", min_width=120,
                    elem_id=f"offload-fill-{name.replace('_', '-')}",
                )
                for name in TRIED
            }  # fmt: skip
    _wire(context, page, controls, link, buttons)


def _stage(values: dict[str, dict[str, Any]]) -> tuple[dict[str, Any], dict[str, gr.HTML]]:
    """Controls by name in the order of the handlers' arguments, and views by name."""
    views: dict[str, gr.HTML] = {}
    with gr.Column(elem_classes="kv-card"):
        words(f"<h3>{text('offload.title.timeline')}</h3>")
        with gr.Row(elem_classes="kv-tools"):
            shown = gr.Radio(
                [(text(f"ui.offload.shown_{i}"), str(i)) for i in range(2)],
                value=str(OffloadChoice().shown), label=text("ui.offload.shown"),
                elem_id="offload-shown", elem_classes="kv-radio", min_width=150,
            )  # fmt: skip
            latest = gr.Checkbox(
                True, label=text("ui.offload.latest"), elem_id="offload-latest", min_width=130
            )
            step = gr.Slider(
                0, 1, value=0, step=1, label=text("ui.offload.step"), elem_id="offload-step", buttons=[],
                min_width=180,
            )  # fmt: skip
        views["offload_timeline"] = live_plot(values["offload_timeline"], "offload-timeline")
        words(f'<p class="kv-look"><b>{text("ui.look_for")}</b> {text("offload.look_for")}</p>')
    with gr.Row(elem_classes="kv-pair-wide"):
        with gr.Column(min_width=300, elem_classes="kv-card"):
            words(f"<h3>{text('offload.title.sums')}</h3>")
            views["offload_said"] = live_view("sentences", values["offload_said"], "offload-said")
            views["offload_tables"] = data_tables(values["offload_tables"], "offload-tables")
        with gr.Column(min_width=300, elem_classes="kv-card"):
            words(f"<h3>{text('offload.title.link')}</h3>")
            link = gr.Dropdown(
                [(link.name, link.key) for link in LINKS], value=USUAL_LINK,
                label=text("ui.offload.link"), elem_id="offload-link-choice",
            )  # fmt: skip
            views["offload_link"] = live_view("sentences", values["offload_link"], "offload-link")
            views["offload_links"] = data_tables(values["offload_links"], "offload-links")
            words(f'<p class="kv-look">{text("offload.link_note")}</p>')
    return {"shown": shown, "latest": latest, "step": step, "link": link}, views


def _wire(
    context: AppContext,
    page: Page,
    controls: dict[str, Any],
    views: dict[str, gr.HTML],
    buttons: dict[str, gr.Button],
) -> None:
    assert page.run is not None
    handlers, rail = OffloadHandlers(context), page.run.rail
    drawn = [views[name] for name in OFFLOAD]
    inputs = [page.run.run_id, *controls.values()]
    changed = [controls[name].input for name in ("shown", "latest", "link")]
    gr.on(changed, handlers.look, inputs, drawn, trigger_mode="always_last", **AT_ONCE)
    controls["step"].input(
        handlers.scrub, inputs, [controls["latest"], *drawn], trigger_mode="always_last", **AT_ONCE
    )
    page.tabs[KEY].select(handlers.enter, page.run.run_id, [controls["step"], *drawn], **AT_ONCE)
    prompt, chat = rail.request[:2]
    sides = [part for side in rail.sides for part in (side.preset, *side.fields, side.label)]
    filled = [rail.notice, rail.prompt_preset, prompt, chat, *sides, page.tab_bar]
    for name, button in buttons.items():
        button.click(partial(handlers.fill, name), page.header.model, filled, **AT_ONCE)
    page.offload = OffloadParts(views)
