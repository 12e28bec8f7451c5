"""When what happened in one step: a lane a kind, a bar a span.

Knows recorded spans; measures nothing and knows no page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvviz.catalogue import text
from kvviz.events import TIMELINE_KINDS, StepTimeline
from kvviz.figures.theme import empty_figure, frame, palette, record_state, to_payload
from kvviz.record import RunRecord

_LANE_PX, _FRAME_PX, EMPTY_HEIGHT = 44, 92, 240
#: Lanes that are there even when they are empty; the others come when something is in them.
ALWAYS = ("compute", "copy_in", "copy_out")
#: kind -> tier whose colour it has: bytes on their way are those of offloaded blocks
_COLORS = {
    "compute": "window",
    "copy_in": "offloaded",
    "copy_out": "sink",
    "host_attention": "exact",
    "wait": "quantized",
    "look": "new",
}
#: Neighbouring layers differ, so that one can be told from the next.
_ALPHA = (1.0, 0.6)


@dataclass(frozen=True, slots=True)
class Lane:
    """All spans of one kind, by start: ``(N,)`` each, times in ms."""

    kind: str
    layers: NDArray[np.int64]
    start_ms: NDArray[np.float64]
    ms: NDArray[np.float64]
    n_bytes: NDArray[np.int64]


def step_of(record: RunRecord, step: int | None) -> int:
    """The step that is meant: None is the latest; what lies beyond the last is the last. -1 without any."""
    last = len(record.timelines) - 1
    return last if step is None else min(max(0, step), last)


def timeline_at(record: RunRecord, step: int | None) -> StepTimeline | None:
    """The timeline of a step; None where none was recorded."""
    at = step_of(record, step)
    return record.timelines[at] if at >= 0 else None


def lanes(timeline: StepTimeline) -> list[Lane]:
    """In the order in which they are drawn, from the top."""
    found = []
    for number, kind in enumerate(TIMELINE_KINDS):
        mine = timeline.kinds == number
        if kind in ALWAYS or mine.any():
            start = timeline.start_ms[mine].astype(np.float64)
            found.append(
                Lane(
                    kind=kind,
                    layers=timeline.layers[mine].astype(np.int64),
                    start_ms=start,
                    ms=timeline.stop_ms[mine].astype(np.float64) - start,
                    n_bytes=timeline.n_bytes[mine],
                )
            )
    return found


def empty_sentence(record: RunRecord) -> str:
    """Why there is no timeline, and what makes one appear."""
    if record.status == "empty":
        return text("offload.empty.none")
    if any(timeline is not None for timeline in record.timelines):
        return text("offload.empty.step")
    if record.timelines:
        return text("offload.empty.near" if _keeps_near(record) else "offload.empty.unrecorded")
    return text(record_state([record]))


def _keeps_near(record: RunRecord) -> bool:
    cache = record.config.get("cache", {})
    return str(cache.get("offload", "none")) == "none" or cache.get("middle") != "quantize"


def timeline_figure(record: RunRecord, step: int | None) -> dict[str, Any]:
    """One step's lanes as a JSON-ready payload."""
    timeline = timeline_at(record, step)
    if timeline is None:
        return to_payload(empty_figure("offload_timeline", empty_sentence(record), EMPTY_HEIGHT))
    n_layers = record.model.n_layers if record.model else int(timeline.layers.max())
    return to_payload(draw_timeline(lanes(timeline), n_layers, kind=record.kind))


def draw_timeline(drawn: list[Lane], n_layers: int, kind: str = "measured") -> go.Figure:
    """The lanes; layer ``n_layers`` is what follows the last one."""
    figure = go.Figure()
    styles = palette().tiers
    for place, lane in enumerate(drawn):
        name = text(f"offload.kind.{lane.kind}.name")
        color = styles[_COLORS[lane.kind]].color
        figure.add_bar(
            orientation="h",
            base=lane.start_ms,
            x=lane.ms,
            y=np.full(len(lane.ms), place),
            width=0.78,
            customdata=_hover_data(lane, n_layers),
            name=name,
            showlegend=False,
            marker={
                "color": color,
                "opacity": [_ALPHA[layer % 2] for layer in lane.layers.tolist()],
                # a span thinner than a pixel is still seen
                "line": {"color": color, "width": 0.6},
            },
            hovertemplate=text("offload.timeline.hover", kind=name)
            + f"<extra>{text(f'figures.kind.{kind}')}</extra>",
        )
    stop = max((float((lane.start_ms + lane.ms).max(initial=0)) for lane in drawn), default=0.0)
    figure.update_xaxes(title_text=text("offload.timeline.axis"), title_standoff=6, range=[0, stop * 1.01])
    figure.update_yaxes(
        tickvals=list(range(len(drawn))),
        ticktext=[text(f"offload.kind.{lane.kind}.name") for lane in drawn],
        range=[len(drawn) - 0.5, -0.5],
        fixedrange=True,
        showgrid=False,
        zeroline=False,
    )
    height = _FRAME_PX + _LANE_PX * len(drawn)
    margin = {"l": 8, "r": 8, "t": 10, "b": 8}
    return frame(figure, "offload_timeline", height, margin=margin, barmode="overlay", bargap=0.1)


def _hover_data(lane: Lane, n_layers: int) -> list[list[Any]]:
    """Layer as people say it, start, length, bytes."""
    after = text("offload.timeline.after")
    rows = zip(
        lane.layers.tolist(), lane.start_ms.tolist(), lane.ms.tolist(), lane.n_bytes.tolist(), strict=True
    )
    return [
        [after if layer >= n_layers else text("offload.timeline.layer", n=layer), start, ms, n_bytes]
        for layer, start, ms, n_bytes in rows
    ]
