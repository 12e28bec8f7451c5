"""The palette and the common frame of every figure.

Knows no record. Font, grid and axis colours are not set here: the page sets them from its own variables, so
that one figure serves the light and the dark page.
"""

from __future__ import annotations

import html
import json
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import plotly.graph_objects as go

from kvviz.catalogue import ASSETS_DIR, text
from kvviz.events import Tier
from kvviz.record import RunRecord

#: Strip tiers that are no place in the cache: no K and V yet, and not reported yet.
NEW = "new"
UNKNOWN = "unknown"
TIER_ORDER = (*(tier.value for tier in Tier), NEW, UNKNOWN)

CLEAR = "rgba(0,0,0,0)"
_WRAP_CHARACTERS = 46


@dataclass(frozen=True, slots=True)
class TierStyle:
    """How one tier looks everywhere: colour, glyph, marker shape, fill pattern; hollow or ``filled``."""

    color: str
    glyph: str
    shape: str
    pattern: str
    filled: bool


@dataclass(frozen=True, slots=True)
class RunStyle:
    """How one run looks where runs share a plot."""

    color: str
    symbol: str
    dash: str


@dataclass(frozen=True, slots=True)
class Palette:
    """All colours of kvviz."""

    tiers: Mapping[str, TierStyle]
    runs: tuple[RunStyle, ...]
    sequential: tuple[str, ...]
    diverging: tuple[str, ...]  # negative, the middle, positive
    reference: str

    def run(self, index: int) -> RunStyle:
        """The style of run ``index``; styles repeat after the last."""
        return self.runs[index % len(self.runs)]


@cache
def palette() -> Palette:
    """The palette of ``assets/palette.json``."""
    plain = json.loads((ASSETS_DIR / "palette.json").read_text(encoding="utf-8"))
    return Palette(
        tiers=MappingProxyType({name: TierStyle(**style) for name, style in plain["tiers"].items()}),
        runs=tuple(RunStyle(**style) for style in plain["runs"]),
        sequential=tuple(plain["sequential"]),
        diverging=tuple(plain["diverging"]),
        reference=plain["reference"],
    )


def tier_name(tier: str) -> str:
    """The word for a tier."""
    return text(f"figures.tier.{tier}")


def run_letter(index: int) -> str:
    """``0`` -> ``A``."""
    return chr(ord("A") + index % 26)


def run_name(index: int, record: RunRecord) -> str:
    """``A: full precision``, or the letter alone for a run without a name."""
    letter = run_letter(index)
    return text("figures.run_name", letter=letter, label=record.label) if record.label else letter


def escape(words: str) -> str:
    """Text as plotly shows it literally: plotly reads ``<b>`` and entities as markup."""
    return html.escape(words, quote=False)


def short(display: str, length: int) -> str:
    """At most ``length`` characters, cut with an ellipsis."""
    return display if len(display) <= length else display[: length - 1] + "…"


def token_label(display: str, length: int = 14) -> str:
    """A token's label for plotly: cut, one line, escaped."""
    return escape(short(display.replace("\n", "⏎"), length))


_WIDE = re.compile(r"[\u2e80-\u9fff\uff00-\uffef\u3000-\u303f]")
#: Where a line may end: after an ideograph with the signs that follow it, or after a word.
_PIECE = re.compile(r"[\u3400-\u9fff][\u3000-\u303f\uff00-\uffef”…]*|[^\s\u3400-\u9fff]+\s*|\s+")


def wrapped(sentence: str, width: int = _WRAP_CHARACTERS) -> str:
    """Words escaped and broken into lines for a plotly annotation, which does not wrap by itself.
    Ideographs stand without spaces and are twice as wide."""
    if not _WIDE.search(sentence):
        return "<br>".join(escape(line) for line in textwrap.wrap(sentence, width))
    lines, room = [""], width
    for piece in _PIECE.findall(sentence):
        taken = sum(2 if _WIDE.match(character) else 1 for character in piece)
        if taken > room and lines[-1]:
            lines.append("")
            room = width
        lines[-1] += piece
        room -= taken
    return "<br>".join(escape(line.strip()) for line in lines)


def rgba(color: str, alpha: float) -> str:
    """``#rrggbb`` with an opacity."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def linear_scale() -> list[list[Any]]:
    """The sequential colours, evenly spaced over 0..1."""
    colors = palette().sequential
    return [[i / (len(colors) - 1), color] for i, color in enumerate(colors)]


def log_scale(decades: float) -> list[list[Any]]:
    """The sequential colours placed on a *linear* 0..1 axis so that they step evenly in the logarithm.

    The lowest colour covers everything up to ``10 ** -decades``.
    """
    colors = palette().sequential
    steps = 4 * (len(colors) - 1)
    stops: list[list[Any]] = [[0.0, colors[0]]]
    for i in range(steps + 1):
        place = i / steps * (len(colors) - 1)
        low = min(math.floor(place), len(colors) - 2)
        stops.append(
            [10 ** (-decades * (1 - i / steps)), _between(colors[low], colors[low + 1], place - low)]
        )
    stops[-1][0] = 1.0
    return stops


def diverging_scale(decades: float | None = None) -> list[list[Any]]:
    """The diverging colours over 0..1 with their middle at 0.5: evenly, or in even steps of the logarithm of
    the distance from the middle, which covers everything nearer than ``10 ** -decades``."""
    colors = palette().diverging
    half = len(colors) // 2
    if decades is None:
        return [[i / (2 * half), color] for i, color in enumerate(colors)]
    near = [10 ** (-decades * (half - i) / half) / 2 for i in range(half + 1)]  # distances from the middle
    below = [[0.5 - near[i], colors[half - i]] for i in range(half, -1, -1)]
    above = [[0.5 + near[i], colors[half + i]] for i in range(half + 1)]
    return [*below, [0.5, colors[half]], *above]


def _between(first: str, second: str, share: float) -> str:
    pairs = [(int(first[i : i + 2], 16), int(second[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def frame(figure: go.Figure, name: str, height: int, **layout: Any) -> go.Figure:
    """Give a figure the common frame: size in pixels, clear background, zoom kept under ``name``."""
    figure.update_layout(
        height=height,
        uirevision=name,
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        margin={"l": 8, "r": 8, "t": 34, "b": 8},
        font={"size": 13},
        hoverlabel={"align": "left"},
        dragmode="zoom",
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    figure.update_layout(**layout)
    return figure


def bottom_legend(y: float) -> dict[str, Any]:
    """A legend in rows below the plot, each entry as wide as its words; ``y`` in plot heights."""
    return {
        "orientation": "h",
        "entrywidth": 0,
        "x": 0,
        "xanchor": "left",
        "y": y,
        "yanchor": "top",
        "traceorder": "normal",
        "font": {"size": 12},
    }


def add_note(figure: go.Figure, column: int, words: str, **place: Any) -> None:
    """Words inside subplot ``column`` (from 1); ``place`` in shares of its width and height."""
    axis = "" if column == 1 else str(column)
    figure.add_annotation(
        text=words, showarrow=False, xref=f"x{axis} domain", yref=f"y{axis} domain", **place
    )


def empty_figure(name: str, sentence: str, height: int) -> go.Figure:
    """A figure of the usual size that says in words why there is nothing to draw."""
    figure = go.Figure()
    figure.add_annotation(
        text=wrapped(sentence), x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font={"size": 15}
    )
    hidden = {"visible": False, "fixedrange": True}
    return frame(figure, name, height, xaxis=hidden, yaxis=hidden)


def to_payload(figure: go.Figure) -> dict[str, Any]:
    """A figure as strict JSON values: ``data``, ``layout``, ``config``.

    Numpy arrays travel as base64 typed arrays (``dtype``, ``bdata``, ``shape``) that plotly.js reads itself.
    """
    plain = json.loads(figure.to_json(validate=False))
    plain["layout"].pop("template", None)
    return {
        "data": plain["data"],
        "layout": plain["layout"],
        "config": {
            "displaylogo": False,
            "responsive": True,
            "displayModeBar": False,
        },
    }


def say_stored(payload: dict[str, Any]) -> dict[str, Any]:
    """The same figure of what was read from a file: no hover says that anything was measured now."""
    measured, stored = (f"<extra>{text(f'figures.kind.{kind}')}</extra>" for kind in ("measured", "stored"))
    data = []
    for trace in payload["data"]:
        hover = trace.get("hovertemplate")
        if isinstance(hover, str):
            trace = trace | {"hovertemplate": hover.replace(measured, stored)}
        elif hover is not None:
            trace = trace | {"hovertemplate": [words.replace(measured, stored) for words in hover]}
        data.append(trace)
    return payload | {"data": data}


def record_state(records: Sequence[RunRecord]) -> str:
    """Catalogue key of the sentence for records that have nothing to draw yet."""
    if any(record.status == "prefill" for record in records):
        return "figures.empty.prefill"
    if any(record.status == "failed" for record in records):
        return "figures.empty.failed"
    if any(record.status == "stopped" for record in records):
        return "figures.empty.stopped"
    return "figures.empty.none"
