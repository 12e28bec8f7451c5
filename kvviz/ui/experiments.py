"""A laboratory tab: one experiment a sub-tab, each a question that a student answers alone.

Lays components out and wires them to handlers; knows experiments only by what they offer.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.experiment import Control, ExperimentInfo, Group
from kvviz.figures.lab import MOST_PANELS
from kvviz.ui import form, lab_views
from kvviz.ui.components import data_tables, file_offer, live_plot, notice_line, words
from kvviz.ui.context import AppContext
from kvviz.ui.lab_handlers import LabHandlers
from kvviz.ui.opening import OpenHandlers
from kvviz.ui.parts import MODEL_QUEUE, RUNS_AT_ONCE, Page
from kvviz.ui.rail import AT_ONCE, USUAL_HEAD_DIM
from kvviz.ui.status import Header
from kvviz.ui.views import notice

#: Groups of channels offered divide a block of this size.
USUAL_BLOCK = 64
_FEW_OPTIONS = 6  # more boxes take a row of their own


def build_experiments(context: AppContext, page: Page, group: Group) -> None:
    """Lay one group's experiments out and wire them."""
    words(f'<p class="kv-intro">{text(f"ui.lab.intro_{group}")}</p>')
    offered = [info for info in context.lab.experiments() if info.group == group]
    with gr.Tabs(elem_classes="kv-experiments"):
        for number, info in enumerate(offered, 1):
            title = text("ui.lab.numbered", n=number, title=text(f"lab.{info.name}.title"))
            with gr.Tab(title, id=info.name), gr.Column(elem_classes="kv-experiment"):
                panel = _Panel(context, page.header, info)
                if info.opens:
                    _offer_configurations(context, page, info, panel)


class _Panel:
    """One experiment: question, controls, Run and Stop, what was found."""

    def __init__(self, context: AppContext, header: Header, info: ExperimentInfo) -> None:
        name = info.name
        words(f"<h2>{text(f'lab.{name}.title')}</h2><p>{text(f'lab.{name}.question')}</p>", "kv-question")
        with gr.Row(elem_classes="kv-controls"):
            controls = [_control(name, control) for control in info.controls]
        with gr.Row(elem_classes="kv-lab-actions"):
            run = gr.Button(text("ui.rail.run"), variant="primary", elem_id=f"lab-{name}-run", min_width=110)
            stop = gr.Button(
                text("ui.rail.stop"), interactive=False, elem_id=f"lab-{name}-stop", min_width=80
            )
            line = notice_line(notice(), f"lab-{name}-notice", ["kv-lab-line"])
        found = notice_line(lab_views.finding(None), f"lab-{name}-finding", ["kv-finding"])
        with gr.Row(elem_classes="kv-lab-plots"):
            plots = [
                live_plot(lab_views.EMPTY_PLOT, f"lab-{name}-plot-{i}", ["kv-lab-plot"])
                for i in range(MOST_PANELS)
            ]
        words(f'<p class="kv-look"><b>{text("ui.look_for")}</b> {text(f"lab.{name}.look_for")}</p>')
        tables = data_tables(lab_views.tables(None), f"lab-{name}-tables")
        with gr.Row(elem_classes="kv-lab-actions"):
            files = {
                kind: gr.Button(
                    text(f"ui.lab.download_{kind}"), size="sm", interactive=False, min_width=90,
                    elem_id=f"lab-{name}-{kind}",
                )
                for kind in ("csv", "json")
            }  # fmt: skip
            offer = file_offer(f"lab-{name}-file")
        handlers = LabHandlers(context, info)
        shown, pending = gr.State(""), gr.State("")
        self.plots, self.shown = plots, shown
        begun = run.click(
            handlers.prepare,
            [header.model, *controls],
            [pending, stop, line],
            trigger_mode="multiple",
            **AT_ONCE,
        )
        begun.then(
            handlers.stream,
            pending,
            [shown, stop, *files.values(), line, found, *plots, tables],
            show_progress="hidden",
            api_visibility="private",
            concurrency_id=MODEL_QUEUE,
            concurrency_limit=RUNS_AT_ONCE,
            trigger_mode="multiple",
        )
        stop.click(handlers.stop, None, stop, **AT_ONCE)
        files["csv"].click(handlers.csv, shown, offer, **AT_ONCE)
        files["json"].click(handlers.json, shown, offer, **AT_ONCE)


def _offer_configurations(context: AppContext, page: Page, info: ExperimentInfo, panel: _Panel) -> None:
    """What was measured can be tried on a prompt: a click on a point, or a list and a button, fill
    configuration B of the Run tab."""
    assert page.run is not None
    side = page.run.rail.sides[-1]
    opening = OpenHandlers(context)
    with gr.Row(elem_classes="kv-lab-open"):
        choice = gr.Dropdown(
            [], label=text("ui.lab.open_choice"), info=text("ui.lab.open_info", letter=side.letter),
            interactive=True, elem_id=f"lab-{info.name}-choice",
        )  # fmt: skip
        button = gr.Button(
            text("ui.lab.open"), size="sm", interactive=False, min_width=150, elem_id=f"lab-{info.name}-open"
        )
    panel.shown.change(opening.offer, panel.shown, [choice, button], **AT_ONCE)
    given = [page.header.model, side.preset, panel.shown]
    filled = [*side.fields, side.label, side.accordion, page.tab_bar]
    button.click(opening.open, [*given, choice], filled, **AT_ONCE)
    for plot in panel.plots:
        plot.click(opening.pick, given, filled, trigger_mode="multiple", **AT_ONCE)


def _control(experiment: str, control: Control) -> Any:
    key = f"lab.{experiment}.control.{control.key}"
    common: dict[str, Any] = {
        "label": text(f"{key}.label"),
        "info": text(f"{key}.info"),
        "elem_id": f"lab-{experiment}-{control.key.replace('_', '-')}",
        "min_width": 130,
    }
    options = [(text(f"{key}.option.{option}"), option) for option in control.options]
    match control.kind:
        case "int":
            return gr.Number(
                control.default, precision=0, minimum=control.low, maximum=control.high, **common
            )
        case "flag":
            return gr.Checkbox(control.default, **common)
        case "choice":
            return gr.Dropdown(options, value=control.default, **common)
        case "quantizer":
            specs = form.quantizer_choices(USUAL_HEAD_DIM, USUAL_BLOCK)
            return gr.Dropdown(specs, value=control.default, allow_custom_value=True, **common)
        case "choices":
            wide = ["kv-wide"] if len(options) > _FEW_OPTIONS else []
            return gr.CheckboxGroup(options, value=list(control.default), elem_classes=wide, **common)
