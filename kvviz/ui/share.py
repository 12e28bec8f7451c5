"""Buttons to pass something on: a link to what stands in the fields, files of what is shown, a file to open.

Lays components out; does not know what a link or a file says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import gradio as gr

from kvviz.catalogue import text
from kvviz.report import MOST_BYTES
from kvviz.ui.components import file_offer, file_opener, live_view

#: Files of what is shown.
KINDS = ("html", "json", "csv")
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


class FileHandlers(Protocol):
    """What a tab does with files."""

    def save(self, kind: str, request: gr.Request, run_id: str) -> list[Any]: ...

    def open(self, request: gr.Request, event: gr.EventData, *values: Any) -> list[Any]: ...


def build_files(owner: str) -> FileParts:
    """Buttons to save what is shown and to open what was saved; their ids end with ``owner``."""
    with gr.Row(elem_classes="kv-share"):
        save = {
            kind: gr.Button(text(f"ui.share.{kind}"), size="sm", elem_id=f"save-{kind}-{owner}", min_width=80)
            for kind in KINDS
        }
        opener = file_opener(f"open-{owner}", MOST_BYTES)
    return FileParts(save, file_offer(f"file-{owner}"), opener)


def build_share(owner: str) -> ShareParts:
    """The buttons of one tab; their ids end with ``owner``."""
    with gr.Row(elem_classes="kv-share"):
        copy = gr.Button(text("ui.share.copy"), size="sm", elem_id=f"copy-link-{owner}", min_width=80)
    link = live_view("link", {"query": ""}, f"link-{owner}")
    return ShareParts(copy, link)


def wire_files(
    files: FileParts,
    handlers: FileHandlers,
    run_id: gr.State,
    line: gr.HTML,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
) -> None:
    """A file is made when it is asked for, and ``line`` says why there is none; what is opened fills
    ``outputs``."""
    for kind, button in files.save.items():
        button.click(_saving(handlers, kind), run_id, [files.offer, line], **AT_ONCE)
    files.opener.click(handlers.open, list(inputs), list(outputs), trigger_mode="multiple", **AT_ONCE)


def _saving(handlers: FileHandlers, kind: str) -> Callable[..., list[Any]]:
    """A function of its own for each kind: gradio hands the request to plain functions only."""

    def save(request: gr.Request, run_id: str) -> list[Any]:
        return handlers.save(kind, request, run_id)

    return save
