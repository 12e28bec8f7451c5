"""Live views: gr.HTML with a fixed template, drawn by the scripts in assets/js from a JSON value.

A value never passes through a template, so whatever a prompt or a model says is shown as it stands. These are
functions and not subclasses, because gradio writes a stub file next to every subclass it meets.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import gradio as gr

from kvviz.catalogue import text

TEMPLATE = '<div class="kv-view"></div>'


def encode(value: dict[str, Any]) -> str:
    """One JSON string, compared and sent as a whole; without ``<``, so it is never taken for markup."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _live(factory: str, value: dict[str, Any], elem_id: str, classes: Sequence[str] = ()) -> gr.HTML:
    return gr.HTML(
        encode(value),
        html_template=TEMPLATE,
        js_on_load=f"kvviz.mount('{factory}', element, props, watch, trigger)",
        apply_default_css=False,
        elem_id=elem_id,
        elem_classes=["kv-live", f"kv-live-{factory}", *classes],
    )


def live_plot(value: dict[str, Any], elem_id: str, classes: Sequence[str] = ()) -> gr.HTML:
    """A plotly figure, updated in place; a click on a heatmap with a ``pick`` tells layer and head, one
    near a point of a figure with ``points`` tells what the point carries.

    Without a figure there is nothing to see of it; a ``heading`` stands above the figure.
    """
    return _live("plot", value, elem_id, classes)


def data_tables(value: dict[str, Any], elem_id: str) -> gr.HTML:
    """Sortable tables whose columns explain themselves."""
    return _live("tables", value, elem_id)


def file_offer(elem_id: str) -> gr.HTML:
    """Hands every new value to the browser as a file; nothing is written on the server."""
    return _live("file", {"name": ""}, elem_id)


def file_opener(elem_id: str, most_bytes: int) -> gr.HTML:
    """A button that reads a text file in the browser, no more than ``most_bytes`` and one of it, and
    tells it as the ``content`` of a click; no file is kept on the server."""
    value = {"label": text("ui.share.open"), "most": most_bytes}
    return _live("opener", value, elem_id)


def live_view(factory: str, value: dict[str, Any], elem_id: str) -> gr.HTML:
    """Any view that a script defines under ``factory``."""
    return _live(factory, value, elem_id)


def token_strip(value: dict[str, Any], elem_id: str) -> gr.HTML:
    """One canvas cell a token."""
    return _live("strip", value, elem_id)


def text_panel(value: dict[str, Any], elem_id: str) -> gr.HTML:
    """A run's text, status and numbers."""
    return _live("panel", value, elem_id)


def notice_line(value: dict[str, Any], elem_id: str, classes: Sequence[str] = ()) -> gr.HTML:
    """A line of information, progress or error."""
    return _live("notice", value, elem_id, classes)


def words(template: str, classes: str = "") -> gr.HTML:
    """Fixed markup around words from the catalogue; never anybody else's words."""
    return gr.HTML(
        html_template=template,
        js_on_load=None,
        apply_default_css=False,
        elem_classes=["kv-words", *filter(None, [classes])],
    )
