"""A run as the values of the page's live views, one builder a view.

Knows records, figures and words; does not know gradio, nor when a view is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from kvviz.catalogue import text
from kvviz.figures.attention_map import attention_figure
from kvviz.figures.memory import memory_figure
from kvviz.figures.metrics import metrics_data, status_sentence
from kvviz.figures.packing import pack_numbers, pack_runs, pack_text
from kvviz.figures.quant_error import quant_error_figure
from kvviz.figures.strip import strip_data
from kvviz.figures.texts import text_segments
from kvviz.figures.tier_mass import tier_mass_figure, tier_mass_over_steps_figure
from kvviz.record import RunRecord, first_divergence
from kvviz.ui.runs import LiveRun, ViewChoice

LETTERS = "AB"
Records = Sequence[RunRecord]
Builder = Callable[[Records, ViewChoice], dict[str, Any]]


def notice(words: str = "", kind: str = "info", fraction: float | None = None) -> dict[str, Any]:
    """A one-line message: ``info``, ``busy`` or ``error``."""
    return {"text": words, "kind": kind, "fraction": fraction}


def panel(records: Records, index: int) -> dict[str, Any]:
    """One configuration's text, status and numbers."""
    record = records[index]
    divergence = first_divergence(records[0], records[1])
    mark = None if divergence is None else text("ui.panel.mark", token=divergence)
    return {
        "letter": LETTERS[index],
        "title": record.label,
        "state": record.status,
        "status": status_sentence(record),
        "text_name": text("ui.panel.text_name", letter=LETTERS[index]),
        "segments": text_segments(record, divergence),
        "mark_title": mark,
        "empty": no_text(record, "ui.panel.empty"),
        "note": _divergence_note(records, divergence) if records[0].generated_ids else "",
        "metrics": [
            metric._asdict() | {"kind_name": text(f"figures.kind.{metric.kind}")}
            for metric in metrics_data(record)
        ],
    }


def no_text(record: RunRecord, before: str) -> str:
    """What stands in place of a text that has no words; ``before``: the sentence before there is a run."""
    if record.text:
        return ""
    if record.status == "empty":
        return text(before)
    return text(f"ui.panel.{'coming' if record.is_live else 'no_text'}")


def same_key(records: Records) -> str:
    """Of the sentence for texts that do not differ: whether more may come."""
    return "same" if any(record.is_live for record in records) else "same_to_end"


def _divergence_note(records: Records, divergence: int | None) -> str:
    if divergence is None:
        return text(f"ui.panel.{same_key(records)}")
    return text(
        "ui.panel.parted",
        token=divergence,
        a=_token(records[0], divergence),
        b=_token(records[1], divergence),
    )


def _token(record: RunRecord, generated: int) -> str:
    place = len(record.prompt_ids) + generated
    return record.labels[place].display if place < len(record.labels) else text("ui.panel.ended")


def strip(records: Records, index: int, choice: ViewChoice) -> dict[str, Any]:
    """One configuration's token strip."""
    return packed_strip(strip_data(records[index], choice.step)) | {
        "name": text("ui.strip.name", letter=LETTERS[index]),
        "bar_note": text("ui.strip.bar_note"),
    }


def packed_strip(data: dict[str, Any]) -> dict[str, Any]:
    """The same with its three long lists made short: a strip of 8,192 tokens has 25,000 entries."""
    received = np.asarray(data["received"], dtype=np.int64)
    # A share of 1 is 1,000,000 units: two 16-bit halves, the high one almost always 0.
    halves = np.concatenate([received & 0xFFFF, received >> 16])
    return data | {
        "labels": pack_text([label.replace("\n", "⏎") for label in data["labels"]]),
        "tiers": pack_runs(np.asarray(data["tiers"])),
        "received": pack_numbers(halves),
    }


def plot(name: str, figure: dict[str, Any]) -> dict[str, Any]:
    """A figure and what it is called."""
    return {"name": text(f"figures.{name}.title"), "figure": figure}


def tier_map(records: Records, choice: ViewChoice) -> dict[str, Any]:
    """The clickable layer x head map; ``pick`` is the cell that the attention map shows."""
    figure = tier_mass_figure(records[choice.shown], choice.group, choice.step)
    has_cells = bool(records[choice.shown].tier_mass)
    pick = {"layer": choice.layer, "head": choice.head} if has_cells else None
    return plot("tier_mass", figure) | {"pick": pick}


def attention(records: Records, choice: ViewChoice) -> dict[str, Any]:
    """The token x token map of the picked layer and head."""
    figure = attention_figure(records[choice.shown], choice.layer, choice.head, choice.scale)
    return plot("attention", figure)


#: Views that depend on records and choice alone, in the order in which the page declares them.
BUILDERS: Mapping[str, Builder] = MappingProxyType(
    {
        "strip_a": lambda records, choice: strip(records, 0, choice),
        "strip_b": lambda records, choice: strip(records, 1, choice),
        "memory": lambda records, choice: plot("memory", memory_figure(records)),
        "tier_map": tier_map,
        "tier_steps": lambda records, choice: plot(
            "tier_mass_steps", tier_mass_over_steps_figure(records[choice.shown])
        ),
        "quant_error": lambda records, choice: plot(
            "quant_error", quant_error_figure(records, choice.measure)
        ),
        "attention": attention,
    }
)

#: Which views a change of one choice redraws.
AFFECTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "shown": ("tier_map", "tier_steps", "attention"),
        "group": ("tier_map",),
        "step": ("tier_map", "strip_a", "strip_b"),
        "layer": ("attention", "tier_map"),
        "head": ("attention", "tier_map"),
        "scale": ("attention",),
        "measure": ("quant_error",),
    }
)


def affected(before: ViewChoice, after: ViewChoice) -> list[str]:
    """The views that look different after a choice."""
    changed = [name for name in AFFECTED if getattr(before, name) != getattr(after, name)]
    return [view for view in BUILDERS if any(view in AFFECTED[name] for name in changed)]


def empty_records(labels: Sequence[str]) -> list[RunRecord]:
    """Records before any run, for the page as it opens."""
    return [RunRecord(config={"label": label}) for label in labels]


def run_notice(run: LiveRun, loading: dict[str, Any], *, final: bool) -> dict[str, Any]:
    """The line under the Run button. ``loading`` is the notice of the model on its way."""
    if run.is_stored:
        return notice(run.remarks)
    if run.error:
        return notice(run.error, "error")
    failed = [record.message for record in run.snapshot() if record.status == "failed"]
    if failed:
        return notice(" ".join(dict.fromkeys(failed)), "error")
    if final:
        return notice(run.remarks) if run.has_started else notice(text("ui.phase.never_began"))
    if run.phase == "loading":
        return loading
    phase = run.phase if run.phase == "waiting" else "running"  # done, but for its last frame
    words = text(f"ui.phase.{'stopping' if run.stop.is_set() else phase}")
    return notice(f"{words} {run.remarks}".rstrip(), "busy")
