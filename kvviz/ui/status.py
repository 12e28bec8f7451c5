"""The header's model line: what is loaded, or how far it is; and what a machine without a GPU means.

Knows the loader's states and the rail's quantizer lists; loads nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvviz.catalogue import text
from kvviz.events import ModelFacts
from kvviz.ui import form
from kvviz.ui.components import encode
from kvviz.ui.context import AppContext
from kvviz.ui.loading import LoadState
from kvviz.ui.rail import AT_ONCE, USUAL_HEAD_DIM, Rail
from kvviz.ui.views import notice
from kvviz.units import format_bytes

POLL_SECONDS = 1.0
QUANTIZED = ("key", "value")


@dataclass(frozen=True)
class ModelStatus:
    """The two lines that depend on the model."""

    header: gr.HTML
    host_note: gr.HTML


def load_notice(state: LoadState) -> dict[str, Any]:
    """How far a model is, as a notice."""
    if state.facts is not None:
        return notice(describe(state.facts))
    if state.phase == "failed":
        return notice(state.message, "error")
    if state.phase == "loading":
        return notice(state.message or text("ui.model.loading"), "busy", state.fraction)
    return notice(text("ui.model.absent"))


def describe(facts: ModelFacts) -> str:
    """``SmolLM2 · CPU float32 · 513 MiB of weights``."""
    return text(
        "ui.model.ready",
        name=facts.name,
        device=facts.device.split(":")[0].upper(),
        dtype=facts.dtype,
        weights=format_bytes(facts.weights_bytes),
        layers=facts.n_layers,
        heads=facts.n_heads,
        kv_heads=facts.n_kv_heads,
        hash=facts.weights_hash[:8],
    )


def host_note(state: LoadState) -> dict[str, Any]:
    """On a machine without a GPU, what the host tier is."""
    on_cpu = state.facts is not None and state.facts.device.startswith("cpu")
    return notice(text("ui.model.same_ram") if on_cpu else "")


def watch_model(context: AppContext, status: ModelStatus, rail: Rail) -> None:
    """Keep the header and the quantizer lists in step with the chosen model and block sizes."""
    timer = gr.Timer(POLL_SECONDS)
    specs = [side.field(name) for side in rail.sides for name in QUANTIZED]
    blocks = [side.field("block_size") for side in rail.sides]
    inputs = [rail.model, *blocks, *specs]

    def lists(model: str, *values: Any) -> list[Any]:
        return quantizer_lists(context.loader.state(str(model or "").strip()), values)

    def tick(model: str, *values: Any) -> list[Any]:
        state = context.loader.state(str(model or "").strip())
        lines = [encode(load_notice(state)), encode(host_note(state))]
        return [*lines, gr.Timer(active=state.phase == "loading"), *quantizer_lists(state, values)]

    gr.on(
        [timer.tick, rail.model.input],
        tick,
        inputs,
        [status.header, status.host_note, timer, *specs],
        **AT_ONCE,
    )
    rail.run.click(lambda: gr.Timer(active=True), None, timer, **AT_ONCE)
    changes = [block.input for block in blocks]
    gr.on(changes, lists, inputs, specs, trigger_mode="always_last", **AT_ONCE)


def quantizer_lists(state: LoadState, values: Sequence[Any]) -> list[Any]:
    """What the four quantizer fields offer: groups that divide, and what stands in the field already.

    ``values`` are the two block sizes, then the four fields. The value goes along, since the field would keep
    its place in the list and not its words.
    """
    head_dim = state.facts.head_dim if state.facts else USUAL_HEAD_DIM
    blocks, present = values[:2], values[2:]
    sizes = [block for block in blocks for _ in QUANTIZED]
    fields = []
    for block, spec in zip(sizes, present, strict=True):
        offered = form.quantizer_choices(head_dim, block)
        if spec and spec not in offered:
            offered.append(spec)
        fields.append(gr.Dropdown(choices=offered, value=spec))
    return fields
