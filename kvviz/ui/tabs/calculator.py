"""The Calculator tab: a model, a GPU and a cache, and what fits. Nothing is loaded and nothing waits."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from kvviz.calculator import gpus, models
from kvviz.catalogue import text
from kvviz.ui import calculator, form
from kvviz.ui.components import live_plot, live_view, notice_line, words
from kvviz.ui.context import AppContext
from kvviz.ui.parts import Page
from kvviz.ui.rail import AT_ONCE, cache_components

KEY = "calculator"
OPENING: dict[str, Any] = {
    "model": "Llama-3-8B", "gpu_gib": 24, "reserve_gib": 1, "weights": "published", "context_tokens": 32768,
    "users": 4, "page_size": 16,
}  # fmt: skip
OPENING_GPU, OPENING_PRESET = "RTX 4090", "k8v4"
#: Bytes do not depend on them.
_WITHOUT_BYTES = ("position", "prefill")


def build(context: AppContext, page: Page) -> None:
    """Lay the tab out and wire it."""
    presets = context.presets
    opening = OPENING_PRESET if OPENING_PRESET in presets.names else context.opening[1]
    cache = form.cache_fields(presets.cache(opening))
    shown = [json.loads(value) for value in calculator.views([*OPENING.values(), *cache], presets)]
    with gr.Row(elem_classes="kv-main"):
        with gr.Column(scale=0, min_width=320, elem_classes="kv-rail"):
            gpu, place = _place()
            preset = gr.Dropdown(
                [(presets.label(name), name) for name in presets.names],
                value=opening, label=text("ui.calc.preset"), elem_id="calc-preset",
            )  # fmt: skip
            fields = cache_components(dict(zip(form.CACHE_FIELDS, cache, strict=True)), "calc")
            for name in _WITHOUT_BYTES:
                fields[form.CACHE_FIELDS.index(name)].visible = False
        with gr.Column(scale=1, min_width=0, elem_classes="kv-stage"):
            views = _stage(shown)
    inputs = [*(place[name] for name in calculator.PLACE_FIELDS), *fields]

    def compute(*values: Any) -> list[str]:
        return calculator.views(values, presets)

    def fill(name: str, *values: Any) -> list[Any]:
        filled = form.cache_fields(presets.cache(name))
        return [*filled, *calculator.views([*values, *filled], presets)]

    def fill_memory(name: str, *values: Any) -> list[Any]:
        gib = next(card.gib for card in gpus() if card.name == name)
        at = calculator.PLACE_FIELDS.index("gpu_gib")
        return [gib, *calculator.views([*values[:at], gib, *values[at + 1 :]], presets)]

    gr.on(
        [component.input for component in inputs], compute, inputs, views,
        trigger_mode="always_last", **AT_ONCE,
    )  # fmt: skip
    placed = inputs[: len(calculator.PLACE_FIELDS)]
    preset.input(fill, [preset, *placed], [*fields, *views], **AT_ONCE)
    gpu.input(fill_memory, [gpu, *inputs], [place["gpu_gib"], *views], **AT_ONCE)


def _place() -> tuple[gr.Dropdown, dict[str, Any]]:
    """The GPU by name, and the fields of ``PLACE_FIELDS``."""
    made: dict[str, Any] = {}

    def common(name: str) -> dict[str, Any]:
        return {
            "label": text(f"ui.calc.{name}.label"),
            "info": text(f"ui.calc.{name}.info"),
            "elem_id": f"calc-{name.replace('_', '-')}",
            "min_width": 110,
        }

    def number(name: str) -> None:
        made[name] = gr.Number(OPENING[name], **common(name))

    made["model"] = gr.Dropdown([m.name for m in models()], value=OPENING["model"], **common("model"))
    gpu = gr.Dropdown([card.name for card in gpus()], value=OPENING_GPU, **common("gpu"))
    with gr.Row(elem_classes="kv-pair"):
        number("gpu_gib")
        number("reserve_gib")
    weights = [(text(f"ui.calc.weights.{name}"), name) for name in calculator.WEIGHTS]
    made["weights"] = gr.Dropdown(weights, value=OPENING["weights"], **common("weights"))
    with gr.Row(elem_classes="kv-pair"):
        number("context_tokens")
        number("users")
    number("page_size")
    return gpu, made


def _stage(shown: list[Any]) -> list[gr.HTML]:
    """Views in the order of ``calculator.views``."""
    line, said, fit, over, sums = shown
    notice = notice_line(line, "calc-notice")
    with gr.Column(elem_classes="kv-card"):
        words(f"<h3>{text('calc.title.answers')}</h3>")
        answers = live_view("sentences", said, "calc-answers")
    plots = []
    with gr.Row(elem_classes="kv-pair-wide"):
        for key, value in (("fit", fit), ("context", over)):
            with gr.Column(min_width=300, elem_classes="kv-card"):
                words(f"<h3>{text(f'calc.figure.{key}.title')}</h3>")
                plots.append(live_plot(value, f"calc-{key}"))
                looks = text(f"calc.look_for.{key}")
                words(f'<p class="kv-look"><b>{text("ui.look_for")}</b> {looks}</p>')
    with gr.Column(elem_classes="kv-card"):
        words(f"<h3>{text('calc.title.sums')}</h3>")
        arithmetic = live_view("sums", sums, "calc-sums")
    with gr.Column(elem_classes="kv-card"):
        words(f"<h3>{text('calc.title.claims')}</h3>")
        live_view("claims", calculator.claims_view(), "calc-claims")
    return [notice, answers, *plots, arithmetic]
