"""Links of the Run tab: from the fields to a query, and from a visitor's query to the fields.

Knows the form and what the page offers; runs nothing and loads no model. A link can name only models, presets
and ready prompts that the page offers itself. What a request and a configuration are in a link is said here
for every tab that has them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import gradio as gr

from kvviz.catalogue import text
from kvviz.config import SamplingConfig
from kvviz.errors import ConfigError, KvvizError
from kvviz.link_values import Cache, CacheChoice, Choice, Flag, Kind, Number, Whole, Words
from kvviz.permalink import LinkForm
from kvviz.ui import form
from kvviz.ui.components import encode
from kvviz.ui.context import AppContext
from kvviz.ui.rail import Rail, Side, name_side, read_inputs
from kvviz.ui.share import AT_ONCE
from kvviz.ui.views import notice

#: Tabs that have links.
LINKED_TABS = ("run", "compare", "lessons")
#: A browser's numbers are exact up to here.
MOST_SEED = 2**53 - 1
MOST_TOKENS = 8_192
MOST_PROMPT_CHARACTERS = 40_000
_SIDES = ("a", "b")


def cache_kind(context: AppContext) -> Cache:
    """A configuration in a link, begun from any preset of the page."""
    return Cache({name: context.presets.cache(name) for name in context.presets.names})


class Request(Protocol):
    """What a link says of a request: of a run, or of a comparison."""

    @property
    def prompt(self) -> str: ...
    @property
    def use_chat_template(self) -> bool: ...
    @property
    def max_new_tokens(self) -> int: ...
    @property
    def sampling(self) -> SamplingConfig: ...


def request_kinds(context: AppContext) -> dict[str, Kind]:
    """Model and request. ``prompt`` names a ready prompt, ``p`` is any other."""
    return {
        "model": Choice([model.name for model in context.models]),
        "prompt": Choice([prompt.key for prompt in context.prompts]),
        "p": Words(MOST_PROMPT_CHARACTERS),
        "chat": Flag(),
        "n": Whole(1, MOST_TOKENS),
        "t": Number(0.001, 5),
        "top_p": Number(0.001, 1),
        "seed": Whole(0, MOST_SEED),
    }


def run_link(context: AppContext) -> LinkForm:
    """What a link of the Run tab may carry."""
    kinds = request_kinds(context) | dict.fromkeys(_SIDES, cache_kind(context))
    return LinkForm("run", kinds, LINKED_TABS)


def said_of(context: AppContext, request: Request, *, sampled: bool) -> dict[str, Any]:
    """The values of ``request_kinds`` that a request has, without the model."""
    ready = next((p for p in context.prompts if p.text == request.prompt), None)
    said: dict[str, Any] = {"prompt": ready.key} if ready else {"p": request.prompt}
    said |= {"chat": request.use_chat_template, "n": request.max_new_tokens}
    if sampled:
        sampling = request.sampling
        said |= {"t": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed}
    return said


def written(context: AppContext, form_: LinkForm, model: str, said: Mapping[str, Any]) -> tuple[str, str]:
    """The query, and a remark on what it leaves out: a model that the page does not offer.

    Raises:
        KvvizError: no link can carry it.
    """
    if model in [choice.name for choice in context.models]:
        return form_.encode({"model": model, **said}), ""
    return form_.encode(said), text("ui.share.model_left_out", model=model)


def read(form_: LinkForm, query: str) -> dict[str, Any] | None:
    """The values of a link with a request; None when it is no link, or one of another tab.

    Raises:
        KvvizError: a link that cannot be read as a whole.
    """
    said = form_.decode(query)
    if said is not None and "prompt" in said and "p" in said:
        raise ConfigError("link_twice", key="prompt")
    return said


def filled_request(context: AppContext, said: Mapping[str, Any]) -> list[Any]:
    """Model, ready prompt, and the request's fields."""
    fields: dict[str, Any] = dict.fromkeys(form.REQUEST_FIELDS, gr.skip())
    ready: Any = gr.skip()
    if "p" in said:
        ready, fields["prompt"] = None, said["p"]
    elif "prompt" in said:
        chosen = next(p for p in context.prompts if p.key == said["prompt"])
        ready, fields["prompt"] = chosen.key, chosen.text
        fields["use_chat_template"] = chosen.use_chat_template
    names = {"chat": "use_chat_template", "n": "max_new_tokens", "t": "temperature"}
    for key in ("chat", "n", "t", "top_p", "seed"):
        if key in said:
            fields[names.get(key, key)] = said[key]
    if {"t", "top_p", "seed"} & said.keys():
        fields["decoding"] = "sampled"
    return [said.get("model", gr.skip()), ready, *fields.values()]


def filled_side(context: AppContext, said: Mapping[str, Any], key: str) -> list[Any]:
    """Preset, fields, label and accordion of the configuration that the link calls ``key``."""
    if key not in said:
        return [gr.skip()] * N_SIDE
    choice: CacheChoice = said[key]
    fields = form.cache_fields(choice.cache)
    changed = choice.cache != context.presets.cache(choice.preset)
    model = said.get("model", context.default_model)
    label = name_side(context, model, choice.preset, *fields)
    return [choice.preset, *fields, label, gr.Accordion(open=True) if changed else gr.skip()]


class LinkHandlers:
    """Bound to one application's context."""

    def __init__(self, context: AppContext) -> None:
        self._context, self._form = context, run_link(context)

    # -- fields to link ------------------------------------------------------------------------------

    def copy(self, *values: Any) -> str:
        """The address of what stands in the fields, for the clipboard; or why there is none."""
        try:
            query, remark = self.query(*values)
        except KvvizError as error:
            return encode(link_value(error=str(error)))
        return encode(link_value(query, remark))

    def query(self, *values: Any) -> tuple[str, str]:
        """The query of ``Rail.inputs`` and a remark on what it leaves out.

        Raises:
            KvvizError: the fields cannot be run, or no link can carry them.
        """
        model, request, sides = read_inputs(values)
        configs = form.read_request(request, sides, self._context.presets)
        said = said_of(self._context, configs[0], sampled=request["decoding"] != "greedy")
        for key, (preset, _), config in zip(_SIDES, sides, configs, strict=True):
            said[key] = CacheChoice(preset, config.cache)
        return written(self._context, self._form, model, said)

    # -- link to fields ------------------------------------------------------------------------------

    def open(self, query: str) -> list[Any]:
        """Fields as a visitor's query says; without a link nothing changes, a wrong one is told."""
        try:
            said = read(self._form, str(query or ""))
            if said is None:
                return [gr.skip()] * n_opened()
        except KvvizError as error:
            return [refusal(error), *[gr.skip()] * (n_opened() - 1)]
        told = encode(notice(text("ui.share.opened")))
        sides = [part for key in _SIDES for part in filled_side(self._context, said, key)]
        return [told, gr.Timer(active=True), *filled_request(self._context, said), *sides]


#: Outputs of :func:`filled_side`.
N_SIDE = len(form.CACHE_FIELDS) + 3


def n_opened() -> int:
    """How many outputs an opened link has: notice, timer, model, ready prompt, request, both sides."""
    return 4 + len(form.REQUEST_FIELDS) + len(_SIDES) * N_SIDE


def refused_words(error: KvvizError) -> str:
    """Why a link was not opened."""
    return text("ui.share.refused", reason=error)


def refusal(error: KvvizError) -> str:
    """The line that says so."""
    return encode(notice(refused_words(error), "error"))


def link_value(query: str = "", remark: str = "", error: str = "") -> dict[str, Any]:
    """What the link view shows; the id makes the same link twice two copies."""
    return {
        "query": query,
        "remark": remark,
        "error": error,
        "id": uuid.uuid4().hex,
        "words": {name: text(f"ui.share.{name}") for name in ("copied", "copy_by_hand", "address")},
    }


def wire_links(context: AppContext, rail: Rail, model_watch: gr.Timer) -> None:
    """Copy on a press; open once, when a page is loaded. Nothing is run."""
    handlers = LinkHandlers(context)
    rail.share.copy.click(handlers.copy, rail.inputs, rail.share.link, **AT_ONCE)
    opened = [rail.notice, model_watch, rail.model, rail.prompt_preset, *rail.request]
    opened += side_parts(rail.sides)
    on_open(handlers.open, opened)


def side_parts(sides: Sequence[Side]) -> list[Any]:
    """The components that :func:`filled_side` fills, side by side."""
    return [part for side in sides for part in (side.preset, *side.fields, side.label, side.accordion)]


def on_open(handler: Any, outputs: Sequence[Any]) -> None:
    """Give ``handler`` the visitor's own query (``location.search``) when the page is loaded: right behind a
    sub-path and inside a frame. Call it while the page is being built."""
    blocks = gr.context.Context.root_block
    assert blocks is not None
    query = gr.Textbox("", visible="hidden", show_label=False)
    blocks.load(handler, query, list(outputs), js="() => window.location.search", **AT_ONCE)
