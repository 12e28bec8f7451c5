"""Buttons to pass something on: a link to what stands in the fields, files of what is shown, a file to open.

Lays components out; does not know what a link or a file says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.ui.components import file_offer, file_opener, live_view

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


@dataclass(frozen=True)
class FileParts:
    """A button for each kind of file, what hands the file to the browser, and what opens one."""

    save: dict[str, gr.Button]
    offer: gr.HTML
    opener: gr.HTML


def build_files(owner: str, kinds: Sequence[str], most_bytes: int) -> FileParts:
    """Buttons to save what is shown and to open what was saved; their ids end with ``owner``."""
    with gr.Row(elem_classes="kv-share"):
        save = {
            kind: gr.Button(text(f"ui.share.{kind}"), size="sm", elem_id=f"save-{kind}-{owner}", min_width=80)
            for kind in kinds
        }
        opener = file_opener(f"open-{owner}", most_bytes)
    return FileParts(save, file_offer(f"file-{owner}"), opener)


def build_share(owner: str) -> ShareParts:
    """The buttons of one tab; their ids end with ``owner``."""
    with gr.Row(elem_classes="kv-share"):
        copy = gr.Button(text("ui.share.copy"), size="sm", elem_id=f"copy-link-{owner}", min_width=80)
    link = live_view("link", {"query": ""}, f"link-{owner}")
    return ShareParts(copy, link)
