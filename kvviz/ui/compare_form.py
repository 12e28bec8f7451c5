"""The rail of the Compare tab: one request, one to four configurations, the text that is scored.

Knows components and the form; starts no run. All its events answer at once, outside the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.comparison_request import MAX_CONFIGURATIONS, PROMPT_TEXT, ComparisonRequest, TextSlice
from kvviz.figures.theme import run_letter
from kvviz.ui import form
from kvviz.ui.components import notice_line
from kvviz.ui.context import AppContext
from kvviz.ui.rail import AT_ONCE, Side, cache_components, name_side, request_fields
from kvviz.ui.share import ShareParts, build_share
from kvviz.ui.views import notice

#: Texts that can be scored: those of the engine, the prompt itself, none.
NO_TEXT = "none"
TEXTS = ("pydoc-topics", "chat", "code", "math", PROMPT_TEXT, NO_TEXT)
TEXT_FIELDS = ("text", "start", "length", "skip")
OPENING_TEXT: dict[str, Any] = {"text": "pydoc-topics", "start": 3000, "length": 1024, "skip": 256}
#: What the third and the fourth configuration begin with.
FURTHER = ("kivi-2", "sinks-window")
_OPENING_COUNT = 2
_SIDE = 1 + len(form.CACHE_FIELDS)


@dataclass(frozen=True)
class CompareRail:
    """``request`` in the order of ``form.REQUEST_FIELDS``, ``text`` in that of ``TEXT_FIELDS``; ``count`` of
    the ``sides`` are in use; ``counted`` is what :func:`show_count` sets."""

    model: gr.Dropdown
    ready: gr.Dropdown
    request: list[Any]
    text: list[Any]
    count: gr.State
    counted: list[Any]
    sides: list[Side]
    run: gr.Button
    stop: gr.Button
    notice: gr.HTML
    share: ShareParts

    @property
    def inputs(self) -> list[Any]:
        """Everything a comparison needs, in the order that :func:`read_inputs` expects."""
        sides = [part for side in self.sides for part in (side.preset, *side.fields)]
        return [self.model, *self.request, *self.text, self.count, *sides]


@dataclass(frozen=True)
class Filled:
    """What stands in the fields: ``request`` and ``text`` by name, ``sides`` as preset and fields."""

    model: str
    request: dict[str, Any]
    text: dict[str, Any]
    sides: list[tuple[str, list[Any]]]


def split_inputs(values: Sequence[Any]) -> Filled:
    """The values of ``CompareRail.inputs`` apart; only the configurations that are in use."""
    n_request, n_text = len(form.REQUEST_FIELDS), len(TEXT_FIELDS)
    model, *rest = values
    request = dict(zip(form.REQUEST_FIELDS, rest[:n_request], strict=True))
    slice_ = dict(zip(TEXT_FIELDS, rest[n_request : n_request + n_text], strict=True))
    count, *parts = rest[n_request + n_text :]
    held = [parts[i * _SIDE : (i + 1) * _SIDE] for i in range(int(count))]
    return Filled(str(model or "").strip(), request, slice_, [(preset, fields) for preset, *fields in held])


def read_inputs(values: Sequence[Any], context: AppContext) -> tuple[str, ComparisonRequest]:
    """Model name and request out of the values of ``CompareRail.inputs``.

    Raises:
        KvvizError: says which configuration and which field cannot be used.
    """
    filled = split_inputs(values)
    if not filled.model:
        raise form.FormError("model_missing")
    configurations = []
    for index, (preset, fields) in enumerate(filled.sides):
        cache = form.read_side(run_letter(index), fields)
        configurations.append((form.describe(preset, fields, context.presets), cache))
    asked = filled.request
    return filled.model, ComparisonRequest(
        prompt=str(asked["prompt"] or ""),
        configurations=tuple(configurations),
        use_chat_template=bool(asked["use_chat_template"]),
        max_new_tokens=form.whole(asked["max_new_tokens"]),
        sampling=form.read_sampling(asked),
        text=read_text(filled.text),
    )


def read_text(fields: dict[str, Any]) -> TextSlice | None:
    """The slice to score, None when nothing is.

    Raises:
        KvvizError: a field that is empty or out of range.
    """
    if fields["text"] == NO_TEXT:
        return None
    numbers = {name: form.whole(fields[name]) for name in ("start", "length", "skip")}
    return TextSlice(str(fields["text"]), **numbers)


def build_rail(context: AppContext, model: gr.Dropdown) -> CompareRail:
    """Lay the controls out and let them follow one another. ``model`` is the page's."""
    count = gr.State(_OPENING_COUNT)
    ready, request = request_fields(context, "-cmp")
    keys = _opening(context)
    groups, sides, removes = [], [], []
    for index, key in enumerate(keys):
        group, side, remove = _side(context, index, key, model)
        groups.append(group)
        sides.append(side)
        removes.append(remove)
    add = gr.Button(text("compare.form.add"), size="sm", elem_id="cmp-add")
    slice_ = _text_fields()
    with gr.Row(elem_classes="kv-actions"):
        run = gr.Button(text("compare.form.run"), variant="primary", elem_id="cmp-run", min_width=100)
        stop = gr.Button(text("ui.rail.stop"), elem_id="cmp-stop", interactive=False, min_width=80)
    line = notice_line(notice(), "cmp-notice")
    counted = [count, add, *groups, *removes]
    share = build_share("cmp")
    rail = CompareRail(model, ready, request, slice_, count, counted, sides, run, stop, line, share)
    _wire_count(context, rail, removes, add)
    return rail


def _opening(context: AppContext) -> list[str]:
    """Presets of the four sides as the page opens."""
    known = list(context.presets.names)
    further = [key if key in known else known[-1] for key in FURTHER]
    return [*context.opening, *further][:MAX_CONFIGURATIONS]


def _side(context: AppContext, index: int, key: str, model: gr.Dropdown) -> tuple[gr.Group, Side, gr.Button]:
    letter = run_letter(index)
    owner = f"cmp-{letter.lower()}"
    values = dict(zip(form.CACHE_FIELDS, form.cache_fields(context.presets.cache(key)), strict=True))
    classes = ["kv-presets", f"kv-run-{letter.lower()}"]
    with gr.Group(visible=index < _OPENING_COUNT, elem_classes=classes) as group:
        with gr.Row(elem_classes="kv-cmp-side"):
            preset = gr.Dropdown(
                [(context.presets.label(name), name) for name in context.presets.names],
                value=key, label=text("ui.rail.preset", letter=letter), elem_id=f"preset-{owner}",
                min_width=150,
            )  # fmt: skip
            remove = gr.Button(
                text("compare.form.remove", letter=letter), size="sm", min_width=44, scale=0,
                elem_id=f"remove-{owner}", elem_classes="kv-remove",
            )  # fmt: skip
        label = notice_line(notice(), f"label-{owner}", ["kv-label"])
        accordion = gr.Accordion(
            text("ui.rail.fields", letter=letter), open=False, elem_id=f"fields-{owner}",
            elem_classes="kv-fields",
        )  # fmt: skip
        with accordion:
            fields = cache_components(values, owner)
    side = Side(letter, preset, label, accordion, fields)
    _follow(context, side, model)
    return group, side, remove


def _follow(context: AppContext, side: Side, model: gr.Dropdown) -> None:
    """A preset fills the fields; a changed field renames the configuration."""

    def fill(model: str, preset: str) -> list[Any]:
        fields = form.cache_fields(context.presets.cache(preset))
        return [*fields, name_side(context, model, preset, *fields)]

    side.preset.input(fill, [model, side.preset], [*side.fields, side.label], **AT_ONCE)
    gr.on(
        [field.input for field in side.fields],
        partial(name_side, context),
        [model, side.preset, *side.fields],
        side.label,
        trigger_mode="always_last",
        **AT_ONCE,
    )


def _text_fields() -> list[Any]:
    choices = [(text(f"compare.text.{name}"), name) for name in TEXTS]
    made: list[Any] = [
        gr.Dropdown(
            choices, value=OPENING_TEXT["text"], label=text("compare.form.text.label"),
            info=text("compare.form.text.info"), elem_id="cmp-text",
        )
    ]  # fmt: skip
    with gr.Row(elem_classes="kv-pair"):
        made += [
            gr.Number(
                OPENING_TEXT[name], label=text(f"compare.form.{name}.label"),
                info=text(f"compare.form.{name}.info"), elem_id=f"cmp-{name}", min_width=80,
            )
            for name in ("start", "length", "skip")
        ]  # fmt: skip
    return made


def show_count(count: int) -> list[Any]:
    """What ``CompareRail.counted`` becomes when ``count`` configurations are in use."""
    return [
        count,
        gr.Button(interactive=count < MAX_CONFIGURATIONS),
        *(gr.Group(visible=i < count) for i in range(MAX_CONFIGURATIONS)),
        *(gr.Button(interactive=count > 1) for _ in range(MAX_CONFIGURATIONS)),
    ]


def _wire_count(context: AppContext, rail: CompareRail, removes: list[gr.Button], add: gr.Button) -> None:
    """One more, or one less: those after it move up."""
    values = [part for side in rail.sides for part in (side.preset, *side.fields)]
    labels = [side.label for side in rail.sides]

    def more(count: int) -> list[Any]:
        return show_count(min(MAX_CONFIGURATIONS, int(count) + 1))

    def less(index: int, model: str, count: int, *held: Any) -> list[Any]:
        sides = [list(held[i * _SIDE : (i + 1) * _SIDE]) for i in range(MAX_CONFIGURATIONS)]
        moved = [*sides[:index], *sides[index + 1 :], sides[index]]
        lines = [name_side(context, model, *side) for side in moved]
        return [*show_count(max(1, int(count) - 1)), *(part for side in moved for part in side), *lines]

    add.click(more, rail.count, rail.counted, **AT_ONCE)
    for index, remove in enumerate(removes):
        remove.click(
            partial(less, index),
            [rail.model, rail.count, *values],
            [*rail.counted, *values, *labels],
            **AT_ONCE,
        )
