"""What does a cache save? The same tokens generated twice: each step reads the newest token alone, or the
whole text again.

Arrays (``N`` generated tokens): ``fed`` ``(2, N)`` tokens that went through the model for each, with a cache
and without; ``ms`` ``(2, N)`` how long that took; ``same`` ``(N,)`` whether both chose the same token. The
first token reads the whole prompt either way. Mark ``largest_logit_difference``: between the two, over all
steps.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import numpy as np
from torch import Tensor

from kvviz.cache import CacheSession
from kvviz.catalogue import text
from kvviz.config import CacheConfig
from kvviz.engine.run import check_length
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, table
from kvviz.lab.bench import CHUNK_SIZE, Bench, Experiment, Experimenting, Tokens
from kvviz.units import format_count, format_ms, format_ratio

INFO = ExperimentInfo(
    "saves",
    (
        Control("prompt_tokens", "int", 256, low=8, high=2048),
        Control("new_tokens", "int", 12, low=2, high=64),
        Control("start", "int", 3000, low=0, high=1_000_000),
    ),
    group="lesson",
    held_tokens=lambda settings: int(settings["prompt_tokens"]) + int(settings["new_tokens"]),
)


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    check_length(bench.model, False, settings["prompt_tokens"], settings["new_tokens"])
    bench.text(settings["start"], settings["prompt_tokens"])


def _work(settings: dict[str, Any]) -> int:
    prompt, new = settings["prompt_tokens"], settings["new_tokens"]
    return int(prompt + new - 1 + new * prompt + new * (new - 1) // 2)


def _feed(bench: Bench, session: CacheSession, ids: list[int]) -> Tensor:
    """The last row's logits ``(V,)`` after reading ``ids`` in chunks."""
    for start in range(0, len(ids), CHUNK_SIZE):
        logits = bench.model.forward(ids[start : start + CHUNK_SIZE], session, last_only=True)
    return logits[-1].float()


def _generate(
    bench: Bench, prompt: list[int], new: int, *, keeps: bool
) -> Generator[Tokens, None, tuple[list[int], list[int], list[float], list[Tensor]]]:
    """Greedy tokens, tokens fed, milliseconds and logits of each step; without a cache every step starts
    anew."""
    ids, fed, ms, rows = list(prompt), [], [], []
    session: CacheSession | None = None
    for _ in range(new):
        begin = time.perf_counter()
        if session is None or not keeps:
            session = bench.model.new_session(CacheConfig())
        unread = ids[session.seen_tokens :]
        logits = _feed(bench, session, unread)
        ids.append(int(logits.argmax()))
        ms.append(1000 * (time.perf_counter() - begin))
        fed.append(len(unread))
        rows.append(logits)
        yield len(unread)
    return ids[len(prompt) :], fed, ms, rows


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    prompt, new = bench.text(settings["start"], settings["prompt_tokens"]), settings["new_tokens"]
    cached, fed_cached, ms_cached, rows_cached = yield from _generate(bench, prompt, new, keeps=True)
    anew, fed_anew, ms_anew, rows_anew = yield from _generate(bench, prompt, new, keeps=False)
    same = [a == b for a, b in zip(cached, anew, strict=True)]
    alike = next((i for i, is_same in enumerate(same) if not is_same), new)  # later steps read other texts
    difference = max(
        float((a - b).abs().max())
        for a, b in zip(rows_cached[: alike + 1], rows_anew[: alike + 1], strict=True)
    )
    steps: list[list[Cell]] = [
        [i + 1, fed_cached[i], fed_anew[i], ms_cached[i], ms_anew[i], bench.model.decode([cached[i]])]
        for i in range(new)
    ]
    columns: list[Any] = [
        ("new_token", "count"), ("fed_cached", "count"), ("fed_anew", "count"), ("ms_cached", "ms"),
        ("ms_anew", "ms"), ("token", "text"),
    ]  # fmt: skip
    later = [float(np.median(ms[1:])) for ms in (ms_cached, ms_anew)]
    said = text(
        f"lab.saves.finding.{'same' if all(same) else 'parted'}",
        new=new, cached=format_count(sum(fed_cached)), anew=format_count(sum(fed_anew)),
        ms_cached=format_ms(later[0]), ms_anew=format_ms(later[1]), times=format_ratio(later[1] / later[0]),
    )  # fmt: skip
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=bench.model.facts,
        text_sha256=bench.corpus.sha256,
        finding=said,
        tables={"saves": table(columns, steps)},
        arrays={
            "fed": np.array([fed_cached, fed_anew]),
            "ms": np.array([ms_cached, ms_anew]),
            "same": np.array(same),
        },
        marks={"largest_logit_difference": difference},
    )


EXPERIMENT = Experiment(info=INFO, work=_work, run=_run, check=_check)
