"""The page: header, tabs, one build of them for each language, and what happens when a session ends.

Knows which tabs there are; knows nothing of what they show.
"""

from __future__ import annotations

import json

import gradio as gr

from kvviz.catalogue import DEFAULT_LANGUAGE, languages, speaking, text
from kvviz.ui import glossary
from kvviz.ui.api import build_api
from kvviz.ui.components import notice_line, words
from kvviz.ui.context import AppContext
from kvviz.ui.language import bound, page_path, switch
from kvviz.ui.parts import Page
from kvviz.ui.rail import AT_ONCE
from kvviz.ui.status import Header, load_notice
from kvviz.ui.tabs import TABS, attention, run

QUEUE_LENGTH = 64


def build_app(context: AppContext) -> gr.Blocks:
    """The whole application, a page for each language, ready to launch."""
    demo: gr.Blocks
    with gr.Blocks(title=text("ui.title"), fill_width=True, analytics_enabled=False) as demo:
        _build_page(context, demo)

        def leave(request: gr.Request) -> None:
            context.runs.forget(str(request.session_hash))
            context.comparisons.forget(str(request.session_hash))
            context.lab_runs.forget(str(request.session_hash))
            context.api_calls.forget(str(request.session_hash))
            context.desks.forget(str(request.session_hash))
            context.courses.forget(str(request.session_hash))

        demo.unload(leave)
        build_api(context)
    for name in languages():
        if name != DEFAULT_LANGUAGE:
            with speaking(name), demo.route(text("language.name"), page_path(name), show_in_navbar=False):
                _build_page(context, demo)
    _bind_languages(demo)
    demo.queue(max_size=QUEUE_LENGTH)
    return demo


def _build_page(context: AppContext, demo: gr.Blocks) -> None:
    """The page in the language that is spoken."""
    page = Page(_header(context))
    with gr.Tabs(elem_classes="kv-tabs") as page.tab_bar:
        for tab in TABS:
            with gr.Tab(text(f"ui.tab.{tab.KEY}"), id=tab.KEY) as page.tabs[tab.KEY]:
                tab.build(context, page)
    run.wire(context, page)
    attention.wire(context, page)
    demo.load(None, None, None, js=f"() => kvviz.start({json.dumps(text('language.tag'))})", **AT_ONCE)


def _bind_languages(demo: gr.Blocks) -> None:
    """Whatever a page asks for is answered in the page's language."""
    spoken = {page_path(name): name for name in languages()}
    for event in demo.fns.values():
        if event.fn is not None:
            event.fn = bound(event.fn, spoken[event.page])


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
        words(switch(), "kv-languages")
        terms = gr.Button(text("glossary.open"), size="sm", elem_id="glossary", min_width=80)
        theme = gr.Button(text("ui.theme"), size="sm", elem_id="theme", min_width=90)
    words(glossary.dialog(), "kv-glossary")
    terms.click(None, None, None, js="() => kvviz.openGlossary()", **AT_ONCE)
    theme.click(None, None, None, js="() => kvviz.toggleTheme()", **AT_ONCE)
    return Header(model, line)
