"""From the calculator's fields to what its views show: no page, no model, at once.

Knows the form and the calculator's room; does not know gradio.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvviz.calculator import Answer, Question, answer, claims, lines, model, sentences
from kvviz.catalogue import text
from kvviz.config import CacheConfig
from kvviz.errors import KvvizError
from kvviz.figures.calculator import context_figure, fit_figure
from kvviz.ui import form
from kvviz.ui.components import encode
from kvviz.ui.context import Presets
from kvviz.ui.views import notice

#: Fields that are not the cache's, in the order in which they stand.
PLACE_FIELDS = (
    "model", "gpu_gib", "reserve_gib", "weights", "context_tokens", "users", "page_size",
)  # fmt: skip
WEIGHTS = ("published", "16", "8", "4")
#: Lines that the asked cache is compared with, where the application has such presets.
COMPARED = ("full", "int8", "kivi-4", "kivi-2")
EMPTY_PLOT: dict[str, Any] = {"name": "", "figure": None}
_WHOLE = ("context_tokens", "users", "page_size")


def read_question(values: Sequence[Any]) -> Question:
    """``PLACE_FIELDS``, then ``form.CACHE_FIELDS``.

    Raises:
        KvvizError: names the field and the rule it breaks.
    """
    size = len(PLACE_FIELDS)
    place = dict(zip(PLACE_FIELDS, values[:size], strict=True))
    weights = str(place["weights"])
    if weights not in WEIGHTS:
        raise form.FormError("weights", value=weights, known=", ".join(WEIGHTS))
    numbers = {name: form.whole(place[name]) for name in _WHOLE}
    sizes: dict[str, Any] = {
        name: text("ui.form.empty_field") if place[name] is None else place[name]
        for name in ("gpu_gib", "reserve_gib")
    }
    return Question(
        shape=model(str(place["model"] or "")),
        cache=form.read_cache(values[size:]),
        weights_bits=None if weights == "published" else int(weights),
        **numbers,
        **sizes,
    )


def compared(presets: Presets) -> dict[str, CacheConfig]:
    """Named caches for the lines."""
    return {presets.label(name): presets.cache(name) for name in COMPARED if name in presets.names}


def views(values: Sequence[Any], presets: Presets) -> list[str]:
    """Notice, sentences, the two figures, the arithmetic. A refusal empties all but the notice."""
    try:
        found = answer(read_question(values))
        shown = _shown(found, presets)
    except KvvizError as error:
        empty = {"title": "", "sentences": [], "lines": []}
        return [encode(part) for part in (notice(str(error), "error"), empty, EMPTY_PLOT, EMPTY_PLOT, empty)]
    return [encode(part) for part in (notice(), *shown)]


def _shown(found: Answer, presets: Presets) -> list[dict[str, Any]]:
    figures = {"fit": fit_figure(found), "context": context_figure(found, compared(presets))}
    plots = [{"name": text(f"calc.figure.{key}.title"), "figure": value} for key, value in figures.items()]
    sums = [
        {"label": line.label, "expression": line.expression, "result": line.shown} for line in lines(found)
    ]
    return [{"sentences": sentences(found), "fits": found.fits}, *plots, {"lines": sums}]


def claims_view() -> dict[str, Any]:
    """All claims with their verdicts and arithmetic."""
    return {
        "claims": [
            {
                "said": claim.said,
                "verdict": text(f"calc.verdict.{claim.verdict}"),
                "kind": claim.verdict,
                "answer": claim.answer,
                "lines": [
                    {"label": line.label, "expression": line.expression, "result": line.shown}
                    for line in claim.lines
                ],
            }
            for claim in claims()
        ]
    }
