"""Small still charts as SVG text: stacked bars and lines. They need no script and print as they look.

Knows plain numbers and words, not what they mean. Ink and grid are ``currentColor``, so that the page around
a chart decides about light and dark. Every word is escaped.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 720
_LEFT, _RIGHT, _BAR, _GAP, _LINE = 150, 70, 22, 12, 16
_PLOT_HEIGHT = 200
_CHARACTER = 7.0  # pixels of a 13-pixel letter, about


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar."""

    name: str
    value: float
    color: str
    hatched: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """Parts laid end to end, with the total in words; ``mark`` is a dashed line across the bar."""

    name: str
    parts: tuple[Part, ...]
    shown: str
    mark: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """Points joined by a line; a point that is not finite leaves a gap."""

    name: str
    y: tuple[float, ...]
    color: str
    dash: str = ""


def stacked_bars(title: str, bars: Sequence[Bar], mark_name: str = "") -> str:
    """Bars one below another on one scale from zero, with a legend of their parts."""
    totals = [max(sum(part.value for part in bar.parts), bar.mark or 0) for bar in bars]
    most = max(totals, default=0) or 1
    scale = (WIDTH - _LEFT - _RIGHT) / most
    found: list[str] = []
    top = _GAP
    for bar in bars:
        found.append(_text(_LEFT - 8, top + _BAR / 2, bar.name, "end"))
        left = float(_LEFT)
        for part in bar.parts:
            found.append(_rectangle(left, top, part.value * scale, part))
            left += part.value * scale
        end = max(left, _LEFT + (bar.mark or 0) * scale)
        if bar.mark is not None:
            x = _LEFT + bar.mark * scale
            found.append(_mark(x, top - 3, top + _BAR + 3))
        found.append(_text(end + 6, top + _BAR / 2, bar.shown, "start"))
        top += _BAR + _GAP
    boxes = [_Entry(p.name, p.color, p.hatched) for bar in bars for p in bar.parts if p.value]
    legend = list(dict.fromkeys(boxes))
    drawn, height = _legend(legend, top + 4, mark_name)
    return _frame(title, "".join(found) + drawn, height)


def lines(
    title: str, rows: Sequence[Line], x: Sequence[float], x_name: str, y_name: str, percent: bool = False
) -> str:
    """Lines over ``x`` on one scale from zero."""
    values = [y for row in rows for y in row.y if math.isfinite(y)]
    most = max(values, default=0) or 1
    low, high = (min(x), max(x)) if len(x) else (0, 1)
    across = (WIDTH - _LEFT - _RIGHT) / ((high - low) or 1)
    bottom = _GAP + _PLOT_HEIGHT

    def place(at: float, y: float) -> str:
        return f"{_LEFT + (at - low) * across:.1f},{bottom - y / most * _PLOT_HEIGHT:.1f}"

    found = [_axis(bottom)]
    for share in (0, 0.5, 1):
        y = bottom - share * _PLOT_HEIGHT
        found.append(_text(_LEFT - 8, y, _number(share * most, percent=percent), "end"))
        found.append(f'<path d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}" class="grid"/>')
    found.append(_text(_LEFT, bottom + _LINE, f"{low:g}", "start"))
    found.append(_text(WIDTH - _RIGHT, bottom + _LINE, f"{high:g}", "end"))
    found.append(_text((_LEFT + WIDTH - _RIGHT) / 2, bottom + _LINE, x_name, "middle"))
    found.append(_text(_LEFT - 8, _GAP + _PLOT_HEIGHT * 0.75, y_name, "end"))
    for row in rows:
        for run in _runs(row.y):
            points = " ".join(place(x[i], row.y[i]) for i in run)
            dash = f' stroke-dasharray="{row.dash}"' if row.dash else ""
            found.append(
                f'<polyline points="{points}" fill="none" stroke="{row.color}" stroke-width="2.5"{dash}/>'
            )
    legend = [_Entry(row.name, row.color, dash=row.dash or "none") for row in rows]
    drawn, height = _legend(legend, bottom + 2 * _LINE, "")
    return _frame(title, "".join(found) + drawn, height)


def _runs(y: Sequence[float]) -> list[list[int]]:
    """Places of neighbouring finite numbers."""
    found: list[list[int]] = [[]]
    for i, value in enumerate(y):
        if math.isfinite(value):
            found[-1].append(i)
        elif found[-1]:
            found.append([])
    return [run for run in found if run]


def _rectangle(left: float, top: float, width: float, part: Part) -> str:
    title = f"<title>{html.escape(part.name)}</title>"
    body = f'x="{left:.2f}" y="{top:.1f}" width="{max(0.0, width):.2f}" height="{_BAR}"'
    found = f'<rect {body} fill="{part.color}">{title}</rect>'
    return found + (f'<rect {body} fill="url(#hatch)"/>' if part.hatched else "")


def _mark(x: float, top: float, bottom: float) -> str:
    return f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" class="mark"/>'


def _axis(bottom: float) -> str:
    return f'<path d="M{_LEFT} {bottom}H{WIDTH - _RIGHT}" class="axis"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


@dataclass(frozen=True, slots=True)
class _Entry:
    """A box, a piece of a line where there is a ``dash``, or without a colour the mark."""

    name: str
    color: str = ""
    hatched: bool = False
    dash: str = ""


def _legend(entries: Sequence[_Entry], top: float, mark: str) -> tuple[str, float]:
    """Swatches in rows; returns the drawing and where it ends."""
    found, left, y = [], 8.0, top + 8
    for entry in [*entries, *([_Entry(mark)] if mark else [])]:
        width = 24 + _CHARACTER * sum(2 if ord(c) > 0x2E80 else 1 for c in entry.name) + 14
        if left + width > WIDTH and left > 8:
            left, y = 8.0, y + 20
        found += [_swatch(entry, left, y), _text(left + 24, y, entry.name, "start")]
        left += width + 6
    return "".join(found), y + 16


def _swatch(entry: _Entry, left: float, y: float) -> str:
    if not entry.color:
        return _mark(left + 8, y - 7, y + 7)
    if entry.dash:
        style = f'stroke="{entry.color}" stroke-width="2.5" stroke-dasharray="{entry.dash}"'
        return f'<path d="M{left} {y}h20" fill="none" {style}/>'
    box = f'x="{left + 2}" y="{y - 6}" width="12" height="12"'
    hatch = f'<rect {box} fill="url(#hatch)"/>' if entry.hatched else ""
    return f'<rect {box} fill="{entry.color}"/>{hatch}'


def _frame(title: str, body: str, height: float) -> str:
    hatch = (
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path d="M0 0V6" stroke="#fff" stroke-opacity=".6" '
        'stroke-width="2"/></pattern></defs>'
    )
    name = html.escape(title, quote=True)
    return f'<svg role="img" viewBox="0 0 {WIDTH} {height:.0f}" aria-label="{name}">{hatch}{body}</svg>'


def _number(value: float, *, percent: bool) -> str:
    return f"{100 * value:.3g} %" if percent else f"{value:.3g}"
