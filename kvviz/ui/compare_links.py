"""Links of the Compare tab: from its fields to a query, and from a visitor's query to its fields.

Knows the tab's form and what the page offers; runs nothing and loads no model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.comparison_request import MAX_CONFIGURATIONS, TextSlice
from kvviz.errors import ConfigError, KvvizError
from kvviz.figures.theme import run_letter
from kvviz.link_values import CacheChoice, Choice, Whole
from kvviz.permalink import LinkForm
from kvviz.ui import form, links
from kvviz.ui.compare_form import (
    NO_TEXT,
    OPENING_TEXT,
    TEXT_FIELDS,
    TEXTS,
    CompareRail,
    read_inputs,
    show_count,
    split_inputs,
)
from kvviz.ui.components import encode
from kvviz.ui.context import AppContext
from kvviz.ui.share import AT_ONCE
from kvviz.ui.views import notice

TAB = "compare"
#: The longest text that is scored has far fewer tokens.
MOST_TEXT_TOKENS = 10_000_000
SIDES = tuple(run_letter(index).lower() for index in range(MAX_CONFIGURATIONS))
#: notice, timer, tabs, model, ready prompt, request; text; state, add, groups, removes; configurations
N_OPENED = (
    5 + len(form.REQUEST_FIELDS) + len(TEXT_FIELDS) + 2 + 2 * MAX_CONFIGURATIONS
    + MAX_CONFIGURATIONS * links.N_SIDE
)  # fmt: skip


def compare_link(context: AppContext) -> LinkForm:
    """What a link of the Compare tab may carry: a request, a slice of a text, one to four configurations."""
    kinds = links.request_kinds(context) | {
        "text": Choice(TEXTS),
        "start": Whole(0, MOST_TEXT_TOKENS),
        "length": Whole(2, MOST_TEXT_TOKENS),
        "skip": Whole(0, MOST_TEXT_TOKENS),
    }
    return LinkForm(TAB, kinds | dict.fromkeys(SIDES, links.cache_kind(context)), links.LINKED_TABS)


class CompareLinkHandlers:
    """Bound to one application's context."""

    def __init__(self, context: AppContext) -> None:
        self._context, self._form = context, compare_link(context)

    def copy_link(self, *values: Any) -> str:
        """The address of what stands in the fields, for the clipboard; or why there is none."""
        try:
            query, remark = self.query(*values)
        except KvvizError as error:
            return encode(links.link_value(error=str(error)))
        return encode(links.link_value(query, remark))

    def query(self, *values: Any) -> tuple[str, str]:
        """The query of ``CompareRail.inputs`` and a remark on what it leaves out.

        Raises:
            KvvizError: the fields cannot be compared, or no link can carry them.
        """
        model, request = read_inputs(values, self._context)
        _ = request.runs  # their own rules hold too
        filled = split_inputs(values)
        said = links.said_of(self._context, request, sampled=filled.request["decoding"] != "greedy")
        said["text"] = NO_TEXT
        if request.text is not None:
            slice_ = request.text
            said |= {
                "text": slice_.name, "start": slice_.start, "length": slice_.length, "skip": slice_.skip
            }  # fmt: skip
        caches = [cache for _, cache in request.configurations]
        for key, (preset, _), cache in zip(SIDES, filled.sides, caches, strict=False):
            said[key] = CacheChoice(preset, cache)
        return links.written(self._context, self._form, model, said)

    def open_link(self, query: str) -> list[Any]:
        """Fields and tab as a visitor's query says; a wrong link is told here when it names this tab."""
        query = str(query or "")
        unchanged = [gr.skip()] * (N_OPENED - 3)
        try:
            said = links.read(self._form, query)
            if said is None:
                return [gr.skip(), gr.skip(), gr.skip(), *unchanged]
            slice_, sides = _text(said), _sides(self._context, said)
        except KvvizError as error:
            if not self._form.is_named(query):
                return [gr.skip(), gr.skip(), gr.skip(), *unchanged]
            return [links.refusal(error), gr.skip(), gr.Tabs(selected=TAB), *unchanged]
        told = encode(notice(text("compare.link.opened")))
        request = links.filled_request(self._context, said)
        return [told, gr.Timer(active=True), gr.Tabs(selected=TAB), *request, *slice_, *sides]


def _text(said: Mapping[str, Any]) -> list[Any]:
    """The fields of the scored text.

    Raises:
        ConfigError: with what the page has where the link says nothing, they make no slice.
    """
    if said.get("text") != NO_TEXT:
        whole = {name: said.get(name, OPENING_TEXT[name]) for name in ("start", "length", "skip")}
        TextSlice(said.get("text", OPENING_TEXT["text"]), **whole)
    return [said.get(name, gr.skip()) for name in TEXT_FIELDS]


def _sides(context: AppContext, said: Mapping[str, Any]) -> list[Any]:
    """How many configurations are in use, and each of them.

    Raises:
        ConfigError: one is there without the one before it.
    """
    used = [key for key in SIDES if key in said]
    for before, key in zip(SIDES, used, strict=False):
        if before != key:
            raise ConfigError("link_gap", key=key, before=before)
    n_counted = 2 + 2 * MAX_CONFIGURATIONS
    counted = show_count(len(used)) if used else [gr.skip()] * n_counted
    return [*counted, *(part for key in SIDES for part in links.filled_side(context, said, key))]


def wire_compare_links(context: AppContext, rail: CompareRail, model_watch: gr.Timer, tabs: gr.Tabs) -> None:
    """Copy on a press; open once, when a page is loaded. Nothing is run."""
    handlers = CompareLinkHandlers(context)
    rail.share.copy.click(handlers.copy_link, rail.inputs, rail.share.link, **AT_ONCE)
    request = [rail.model, rail.ready, *rail.request]
    sides = links.side_parts(rail.sides)
    links.on_open(
        handlers.open_link, [rail.notice, model_watch, tabs, *request, *rail.text, *rail.counted, *sides]
    )
