"""The left rail: every control of a request, and how the controls follow one another.

Knows components and the form; starts no run. All its events answer at once, outside the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.config import Middle, OffloadRead, Position, Prefill
from kvviz.errors import KvvizError
from kvviz.ui import form
from kvviz.ui.components import encode, notice_line
from kvviz.ui.context import AppContext
from kvviz.ui.share import AT_ONCE, FileParts, ShareParts, build_files, build_share
from kvviz.ui.views import LETTERS, notice

__all__ = ["AT_ONCE", "Rail", "Side", "build_rail", "cache_components", "name_side", "read_inputs"]

#: Offered before a model is loaded.
USUAL_HEAD_DIM = 64


@dataclass(frozen=True)
class Side:
    """One configuration's controls; ``fields`` in the order of ``form.CACHE_FIELDS``."""

    letter: str
    preset: gr.Dropdown
    label: gr.HTML
    accordion: gr.Accordion
    fields: list[Any]

    def field(self, name: str) -> Any:
        """One field by name."""
        return self.fields[form.CACHE_FIELDS.index(name)]


@dataclass(frozen=True)
class Rail:
    """All controls of a request; ``request`` in the order of ``form.REQUEST_FIELDS``."""

    model: gr.Dropdown
    prompt_preset: gr.Dropdown
    request: list[Any]
    sides: list[Side]
    run: gr.Button
    stop: gr.Button
    notice: gr.HTML
    share: ShareParts
    files: FileParts

    @property
    def inputs(self) -> list[Any]:
        """Everything a run needs, in the order that :func:`read_inputs` expects."""
        sides = [part for side in self.sides for part in (side.preset, *side.fields)]
        return [self.model, *self.request, *sides]


def read_inputs(values: Sequence[Any]) -> tuple[str, dict[str, Any], list[tuple[str, list[Any]]]]:
    """Model name, request and the two (preset, fields) pairs out of the values of ``Rail.inputs``."""
    model, *rest = values
    n_request = len(form.REQUEST_FIELDS)
    request = dict(zip(form.REQUEST_FIELDS, rest[:n_request], strict=True))
    rest = rest[n_request:]
    size = 1 + len(form.CACHE_FIELDS)
    sides = [(part[0], part[1:]) for part in (rest[:size], rest[size:])]
    return str(model or "").strip(), request, sides


def build_rail(context: AppContext, model: gr.Dropdown) -> Rail:
    """Lay the controls out and let them follow one another. ``model`` is the page's."""
    ready, request = request_fields(context)
    with gr.Group(elem_classes="kv-presets"):
        presets = [_preset(context, i) for i in range(2)]
    with gr.Row(elem_classes="kv-actions"):
        run = gr.Button(text("ui.rail.run"), variant="primary", elem_id="run", min_width=100)
        stop = gr.Button(text("ui.rail.stop"), elem_id="stop", interactive=False, min_width=80)
    line = notice_line(notice(), "run-notice")
    share, files = build_share("run"), build_files("run")
    sides = [_side(context, i, preset, label, model) for i, (preset, label) in enumerate(presets)]
    return Rail(model, ready, request, sides, run, stop, line, share, files)


def request_fields(context: AppContext, owner: str = "") -> tuple[gr.Dropdown, list[Any]]:
    """The ready prompts, and a request's fields in the order of ``form.REQUEST_FIELDS``; their ids end with
    ``owner``."""
    first = context.prompts[0]
    ready = gr.Dropdown(
        [(p.label, p.key) for p in context.prompts],
        value=first.key,
        label=text("ui.rail.prompt_preset"),
        elem_id=f"prompt-preset{owner}",
    )
    prompt = gr.Textbox(
        first.text, label=text("ui.rail.prompt"), lines=3, max_lines=6, elem_id=f"prompt{owner}"
    )
    chat = gr.Checkbox(first.use_chat_template, label=text("ui.rail.chat"), elem_id=f"chat{owner}")
    with gr.Row(elem_classes="kv-pair"):
        tokens = gr.Number(64, label=text("ui.rail.tokens"), elem_id=f"tokens{owner}", min_width=90)
        decoding = gr.Radio(
            [(text(f"ui.rail.{how}"), how) for how in ("greedy", "sampled")],
            value="greedy",
            label=text("ui.rail.decoding"),
            elem_id=f"decoding{owner}",
            elem_classes="kv-decoding",
            min_width=150,
        )
    with gr.Row(visible=False, elem_classes="kv-pair") as sampling:
        temperature = gr.Number(0.8, label=text("ui.rail.temperature"), step=0.1, min_width=70)
        top_p = gr.Number(0.95, label=text("ui.rail.top_p"), step=0.05, min_width=70)
        seed = gr.Number(0, label=text("ui.rail.seed"), min_width=70, elem_id=f"seed{owner}")

    def fill(key: str | None) -> list[Any]:
        chosen = next((p for p in context.prompts if p.key == key), None)
        return [chosen.text, chosen.use_chat_template] if chosen else [gr.skip(), gr.skip()]

    prompt.input(lambda: None, None, ready, **AT_ONCE)
    ready.input(fill, ready, [prompt, chat], **AT_ONCE)
    decoding.change(lambda how: gr.Row(visible=how == "sampled"), decoding, sampling, **AT_ONCE)
    return ready, [prompt, chat, tokens, decoding, temperature, top_p, seed]


def _preset(context: AppContext, index: int) -> tuple[gr.Dropdown, gr.HTML]:
    key, letter = context.opening[index], LETTERS[index]
    preset = gr.Dropdown(
        [(context.presets.label(name), name) for name in context.presets.names],
        value=key,
        label=text("ui.rail.preset", letter=letter),
        elem_id=f"preset-{letter.lower()}",
        elem_classes=f"kv-run-{letter.lower()}",
    )
    label = notice_line(notice(), f"label-{letter.lower()}", ["kv-label"])
    return preset, label


def _side(context: AppContext, index: int, preset: gr.Dropdown, label: gr.HTML, model: gr.Dropdown) -> Side:
    letter = LETTERS[index]
    values = dict(
        zip(form.CACHE_FIELDS, form.cache_fields(context.presets.cache(context.opening[index])), strict=True)
    )
    accordion = gr.Accordion(
        text("ui.rail.fields", letter=letter),
        open=False,
        elem_id=f"fields-{letter.lower()}",
        elem_classes="kv-fields",
    )
    with accordion:
        fields = cache_components(values, letter.lower())
    side = Side(letter, preset, label, accordion, fields)
    _follow(context, side, model)
    return side


def cache_components(values: dict[str, Any], owner: str) -> list[Any]:
    """A cache's fields in the order of ``form.CACHE_FIELDS``; their ids end with ``owner``."""
    made: dict[str, Any] = {}

    def common(name: str) -> dict[str, Any]:
        return {
            "label": text(f"ui.field.{name}.label"),
            "info": text(f"ui.field.{name}.info"),
            "elem_id": f"{name.replace('_', '-')}-{owner}",
            "min_width": 110,
        }

    def number(name: str) -> None:
        made[name] = gr.Number(values[name], **common(name))

    def choice(name: str, kind: Any) -> None:
        words = [(text(f"ui.choice.{name}.{item.value}"), item.value) for item in kind]
        made[name] = gr.Dropdown(words, value=values[name], **common(name))

    def quantizer(name: str) -> None:
        specs = form.quantizer_choices(USUAL_HEAD_DIM, values["block_size"], name)
        made[name] = gr.Dropdown(specs, value=values[name], allow_custom_value=True, **common(name))

    with gr.Row(elem_classes="kv-pair"):
        number("sink_size")
        number("window_size")
    with gr.Row(elem_classes="kv-pair"):
        choice("middle", Middle)
        number("block_size")
    quantizer("key")
    quantizer("value")
    with gr.Row(elem_classes="kv-pair"):
        made["offload"] = gr.Dropdown(
            list(form.OFFLOADS), value=values["offload"], allow_custom_value=True, **common("offload")
        )
        choice("offload_read", OffloadRead)
    with gr.Row(elem_classes="kv-pair"):
        choice("prefill", Prefill)
        choice("position", Position)
    made["overrides"] = gr.Textbox(
        values["overrides"], lines=2, placeholder="0:int8:token:g64:absmax/none", **common("overrides")
    )
    return [made[name] for name in form.CACHE_FIELDS]


def _follow(context: AppContext, side: Side, model: gr.Dropdown) -> None:
    """A preset fills the fields; a changed field renames the configuration."""

    def fill(model: str, preset: str) -> list[Any]:
        fields = form.cache_fields(context.presets.cache(preset))
        return [*fields, name_side(context, model, preset, *fields)]

    side.preset.input(fill, [model, side.preset], [*side.fields, side.label], **AT_ONCE)
    gr.on(
        [*(field.input for field in side.fields), side.field("overrides").change],
        partial(name_side, context),
        [model, side.preset, *side.fields],
        side.label,
        trigger_mode="always_last",
        **AT_ONCE,
    )


def name_side(context: AppContext, model: str, preset: str, *values: Any) -> str:
    """The line under a preset: what the fields make of it and what the loaded model says against it, or why
    they cannot be read."""
    try:
        label = form.describe(preset, values, context.presets)
        remarks = context.loader.remarks(str(model or "").strip(), form.read_cache(values))
    except KvvizError as error:
        return encode(notice(str(error), "error"))
    named = "" if label == context.presets.label(preset) else label
    return encode(notice(" · ".join([named, *remarks] if named else remarks)))
