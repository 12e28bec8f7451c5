"""The Lessons tab: predict, run, observe, explain. Lays views out and wires them; knows no lesson.

What a lesson shows comes when the page is opened, because its link may name one.
"""

from __future__ import annotations

import gradio as gr

from kvviz.ui import lab_views, lesson_figures
from kvviz.ui.components import data_tables, live_plot, live_view, notice_line
from kvviz.ui.context import AppContext
from kvviz.ui.lesson_handlers import LessonHandlers
from kvviz.ui.links import on_open
from kvviz.ui.parts import MODEL_QUEUE, RUNS_AT_ONCE, Page
from kvviz.ui.rail import AT_ONCE
from kvviz.ui.views import notice

KEY = "lessons"


def build(context: AppContext, page: Page) -> None:
    """Lay the tab out and wire it."""
    with gr.Column(elem_id="lesson-card", elem_classes="kv-lesson"):
        nav = live_view("lesson-nav", {"title": ""}, "lesson-nav")
        with gr.Row(elem_classes="kv-lesson-main"):
            with gr.Column(elem_classes="kv-lesson-left"):
                asked = live_view("lesson", {}, "lesson")
                line = notice_line(notice(), "lesson-notice")
                told = live_view("lesson-tell", {"paragraphs": []}, "lesson-tell")
            with gr.Column(elem_classes="kv-lesson-plots"):
                plots = [
                    live_plot(lab_views.EMPTY_PLOT, f"lesson-plot-{i}", ["kv-lab-plot"])
                    for i in range(lesson_figures.MOST_FIGURES)
                ]
                tables = data_tables(lab_views.tables(None), "lesson-tables")
    handlers = LessonHandlers(context)
    views = [nav, asked, line, *plots, told, tables]
    pending = gr.State("")
    assert page.tab_bar is not None
    on_open(handlers.arrive, [*views, page.tab_bar])
    for pressed in (nav, asked):
        pressed.click(handlers.act, None, views, trigger_mode="multiple", **AT_ONCE)
    begun = asked.submit(
        handlers.prepare, page.header.model, [pending, asked, line], trigger_mode="multiple", **AT_ONCE
    )
    begun.then(
        handlers.stream,
        pending,
        views,
        show_progress="hidden",
        api_visibility="private",
        concurrency_id=MODEL_QUEUE,
        concurrency_limit=RUNS_AT_ONCE,
        trigger_mode="multiple",
    )
