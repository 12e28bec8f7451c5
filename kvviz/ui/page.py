"""The page: header, tabs, and what happens when a session ends.

Knows which tabs there are; knows nothing of what they show.
"""

from __future__ import annotations

import gradio as gr

from kvviz.catalogue import text
from kvviz.ui.components import notice_line, words
from kvviz.ui.context import AppContext
from kvviz.ui.parts import Page
from kvviz.ui.rail import AT_ONCE
from kvviz.ui.status import Header, load_notice
from kvviz.ui.tabs import TABS, attention, run

QUEUE_LENGTH = 64


def build_app(context: AppContext) -> gr.Blocks:
    """The whole application as a page that is ready to launch."""
    demo: gr.Blocks
    with gr.Blocks(title=text("ui.title"), fill_width=True, analytics_enabled=False) as demo:
        header = _header(context)
        page = Page(header)
        with gr.Tabs(elem_classes="kv-tabs") as page.tab_bar:
            for tab in TABS:
                with gr.Tab(text(f"ui.tab.{tab.KEY}"), id=tab.KEY) as page.tabs[tab.KEY]:
                    tab.build(context, page)
        run.wire(context, page)
        attention.wire(context, page)

        def leave(request: gr.Request) -> None:
            context.runs.forget(str(request.session_hash))
            context.lab_runs.forget(str(request.session_hash))
            context.desks.forget(str(request.session_hash))

        demo.unload(leave)
        demo.load(None, None, None, js="() => kvviz.start()", **AT_ONCE)
    demo.queue(max_size=QUEUE_LENGTH)
    return demo


def _header(context: AppContext) -> Header:
    with gr.Row(elem_classes="kv-header"):
        words(f"<h1>{text('ui.title')}</h1><p>{text('ui.tagline')}</p>", "kv-brand")
        model = gr.Dropdown(
            [(choice.label, choice.name) for choice in context.models],
            value=context.default_model,
            label=text("ui.header.model"),
            info=text(
                "ui.header.model_info_listed" if context.hosting.limits.models else "ui.header.model_info"
            ),
            allow_custom_value=not context.hosting.limits.models,
            elem_id="model",
        )
        line = notice_line(load_notice(context.loader.state(context.default_model)), "model-status")
        theme = gr.Button(text("ui.theme"), size="sm", elem_id="theme", min_width=90)
    theme.click(None, None, None, js="() => kvviz.toggleTheme()", **AT_ONCE)
    return Header(model, line)
