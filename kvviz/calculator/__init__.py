"""ROOM what would it take? Bytes of a KV cache computed from a model's shape, before anything runs.

Plain integers: no tensor, no model, no page. The rules are those of the README's "What the cache means"; that
they agree with the bytes which the real cache counts is tested, not assumed.
"""

from __future__ import annotations

from kvviz.calculator.arithmetic import Line, lines
from kvviz.calculator.claims import Claim, claims
from kvviz.calculator.fit import Answer, Question, answer, largest_context, peak_bytes
from kvviz.calculator.formula import Counts, KvBytes, Term, counts, full_bytes, kv_bytes, side_terms, terms
from kvviz.calculator.shapes import Gpu, ModelShape, gpu, gpus, model, models
from kvviz.calculator.words import sentences

__all__ = [
    "Answer",
    "Claim",
    "Counts",
    "Gpu",
    "KvBytes",
    "Line",
    "ModelShape",
    "Question",
    "Term",
    "answer",
    "claims",
    "counts",
    "full_bytes",
    "gpu",
    "gpus",
    "kv_bytes",
    "largest_context",
    "lines",
    "model",
    "models",
    "peak_bytes",
    "sentences",
    "side_terms",
    "terms",
]
