"""A made-up comparison of full precision and a stack, for tests that need one and no model."""

from __future__ import annotations

import math

from kvviz.comparison import (
    Comparison,
    Entry,
    Generation,
    Machine,
    Score,
    TextScore,
    WorstToken,
)
from kvviz.comparison_request import ComparisonRequest, TextSlice
from kvviz.config import CacheConfig
from kvviz.record import RunRecord
from tests.builders import FULL, STACK, make_facts, make_memory, make_record

ROWS = 6
NLL_FULL = (1.0, 2.0, 0.5, 3.0, 0.25, 1.25)


def make_generation(record: RunRecord, divergence: int | None) -> Generation:
    """What a comparison keeps of a record."""
    labels = record.labels[len(record.prompt_ids) :]
    return Generation(
        status=record.status,
        message=record.message,
        text=record.text,
        token_ids=tuple(record.generated_ids),
        labels=tuple((label.display, label.raw.hex()) for label in labels),
        ttft_ms=record.ttft_ms,
        tpot_ms=record.tpot_ms,
        step_ms=tuple(record.step_ms),
        memory=record.memory[-1] if record.memory else None,
        divergence=divergence,
    )


def make_score(cache: CacheConfig, excess: float) -> Score:
    """A score whose every row loses ``excess`` nats."""
    nll = tuple(x + excess for x in NLL_FULL)
    worst = (WorstToken(5, "␠w5", "w3 w4", NLL_FULL[1], nll[1], excess / 2, "␠w5", "␠w9"),) if excess else ()
    return Score(
        ppl=math.exp(sum(nll) / ROWS),
        kl=excess / 2,
        top1=1 - excess,
        nll=nll,
        kl_rows=(excess / 2,) * ROWS,
        worst=worst,
        memory=make_memory(cache, make_facts(), 10),
        seconds=0.5,
    )


def make_comparison(*, scored: bool = True, others: int = 1) -> Comparison:
    """Full precision, and ``others`` stacks that part from it at generated token 2, 3, ..."""
    caches = [("full", FULL), *((f"stack {i}", STACK) for i in range(others))]
    text = TextSlice("pydoc-topics", 0, 10, 3) if scored else None
    request = ComparisonRequest("made up", tuple(caches), max_new_tokens=6, text=text)
    entries = []
    for index, (label, cache) in enumerate(caches):
        ids = list(range(50, 56))
        divergence = index + 1 if index else None
        if divergence is not None:
            ids[divergence:] = [i + 20 + index for i in ids[divergence:]]
        record = make_record(8, 6, cache=cache, label=label, generated_ids=ids)
        score = make_score(cache, 0.1 * index) if scored else None
        entries.append(Entry(label, cache.to_dict(), make_generation(record, divergence), score))
    return Comparison(
        request=request.to_dict(),
        model=make_facts(),
        machine=Machine("Linux", "a processor", 2, 1 << 34),
        versions={"kvviz": "0", "torch": "2"},
        created="2026-01-01T00:00:00+00:00",
        prompt_tokens=8,
        text=TextScore(
            "pydoc-topics", "ab" * 32, 10, ROWS, math.exp(sum(NLL_FULL) / ROWS), NLL_FULL, 0.5
        ) if scored else None,
        entries=tuple(entries),
        elapsed_ms=1234.5,
    )  # fmt: skip
