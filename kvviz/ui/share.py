"""Buttons to pass something on: a link to what stands in the fields, files of what is shown, a file to open.

Lays components out; does not know what a link or a file says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.ui.components import live_view

#: Options of every handler that only touches the page.
AT_ONCE: dict[str, Any] = {
    "queue": False,
    "show_progress": "hidden",
    "api_visibility": "private",
}


@dataclass(frozen=True)
class ShareParts:
    """``link`` shows the address and puts it on the clipboard when its value changes."""

    copy: gr.Button
    link: gr.HTML


def build_share(owner: str) -> ShareParts:
    """The buttons of one tab; their ids end with ``owner``."""
    with gr.Row(elem_classes="kv-share"):
        copy = gr.Button(text("ui.share.copy"), size="sm", elem_id=f"copy-link-{owner}", min_width=80)
    link = live_view("link", {"query": ""}, f"link-{owner}")
    return ShareParts(copy, link)
