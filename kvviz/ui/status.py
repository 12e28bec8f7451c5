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
class Header:
    """What stands above all tabs and belongs to all: the model and how far it is."""

    model: gr.Dropdown
    line: gr.HTML


def load_notice(state: LoadState) -> dict[str, Any]:
    """How far a model is, as a notice."""
    if state.facts is not None:
        return notice(describe(state.facts))
    if state.phase == "failed":
        return notice(str(state.message), "error")
    if state.phase == "loading":
        return notice(str(state.message) or text("ui.model.loading"), "busy", state.fraction)
    return notice(text("ui.model.absent"))


def describe(facts: ModelFacts) -> str:
    """``SmolLM2 · CPU float32 · 513 MiB of weights``, and the commit of a model from the Hub."""
    return commit_words(
        facts,
        text(
            "ui.model.ready",
            name=facts.name,
            device=facts.device.split(":")[0].upper(),
            dtype=facts.dtype,
            weights=format_bytes(facts.weights_bytes),
            layers=facts.n_layers,
            heads=facts.n_heads,
            kv_heads=facts.n_kv_heads,
            hash=facts.weights_hash[:8],
        ),
    )


def commit_words(facts: ModelFacts, words: str) -> str:
    """``words`` with the commit that was loaded, and whether the name pins it."""
    if not facts.commit:
        return words
    key = "pinned" if facts.is_pinned else "unpinned"
    return text(f"models.commit.{key}", words=words, commit=facts.commit[:8])


def host_note(state: LoadState) -> dict[str, Any]:
    """On a machine without a GPU, what the host tier is."""
    on_cpu = state.facts is not None and state.facts.device.startswith("cpu")
    return notice(text("ui.model.same_ram") if on_cpu else "")


def watch_model(context: AppContext, header: Header, host: gr.HTML, rail: Rail) -> gr.Timer:
    """Keep the header and the quantizer lists in step with the chosen model and block sizes.

    The timer stops by itself when nothing loads; whoever may start a load sets it going.
    """
    timer = gr.Timer(POLL_SECONDS)
    specs = [side.field(name) for side in rail.sides for name in QUANTIZED]
    blocks = [side.field("block_size") for side in rail.sides]
    offered = gr.JSON(visible="hidden")
    inputs = [rail.model, *blocks]

    def lists(model: str, *block_sizes: Any) -> list[list[str]]:
        return quantizer_lists(context.loader.state(str(model or "").strip()), block_sizes)

    def tick(model: str, *block_sizes: Any) -> list[Any]:
        state = context.loader.state(str(model or "").strip())
        lines = [encode(load_notice(state)), encode(host_note(state))]
        return [*lines, gr.Timer(active=state.phase == "loading"), quantizer_lists(state, block_sizes)]

    gr.on(
        [timer.tick, rail.model.input],
        tick,
        inputs,
        [header.line, host, timer, offered],
        **AT_ONCE,
    )
    changes = [block.change for block in blocks]
    gr.on(changes, lists, inputs, offered, trigger_mode="always_last", **AT_ONCE)
    # Gradio's list fails when it gets shorter while it is open, so the page closes it first.
    offered.change(None, [offered, *specs], specs, js="(...given) => kvviz.offer(...given)", **AT_ONCE)
    return timer


def quantizer_lists(state: LoadState, block_sizes: Sequence[Any]) -> list[list[str]]:
    """What each quantizer field offers, first A's keys and values, then B's: only groups that divide."""
    head_dim = state.facts.head_dim if state.facts else USUAL_HEAD_DIM
    return [form.quantizer_choices(head_dim, block, side) for block in block_sizes for side in QUANTIZED]
