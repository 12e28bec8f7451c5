"""Is it memory? A fact stands somewhere in a long document, and the question comes at the end.

Every cache reads the same prompt. The beginning of the answer is given, so that the first token still to come
is the fact's number: its probability is read off (teacher-forced), and the model goes on by itself for a few
tokens. Does not know how the numbers are drawn.

Progress counts the document's tokens alone, so that it does not depend on how a model's chat looks. Arrays
of the result (``C`` caches, ``D`` depths), each ``(C, D)``: ``probability`` of the whole number;
``fact_mass`` and ``fact_peak``, the share of attention of the prompt's last row that went to the fact's
tokens, as the mean of all layers and heads and as the largest. The table ``fluency`` is over the rows of the
document that no longer fit into the budget. Marks: ``caches``, ``depths``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kvviz.attention import Attention
from kvviz.cache import CacheSession
from kvviz.cache.plan import StepPlan
from kvviz.catalogue import text
from kvviz.config import CacheConfig, Middle, Offload
from kvviz.errors import ConfigError
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, Table, table
from kvviz.lab.bench import CHUNK_SIZE, Bench, Experiment, Experimenting, Tokens, nll_of_sample
from kvviz.quant_config import QuantConfig
from kvviz.units import format_share

CACHES = ("full", "window", "sinks", "quantized")
DEPTHS = ("10", "30", "50", "70", "90")
_ANSWER_TOKENS = 12

INFO = ExperimentInfo(
    "recall",
    (
        Control("caches", "choices", list(CACHES), options=CACHES),
        Control("depths", "choices", ["10", "50", "90"], options=DEPTHS),
        Control("length", "int", 768, low=64, high=32_768),
        Control("sinks", "int", 4, low=1, high=64),
        Control("window", "int", 256, low=16, high=4096),
        Control("code", "int", 7294, low=1000, high=9999),
        Control("start", "int", 3000, low=0, high=1_000_000),
    ),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt as ids, with the beginning of the answer; ``fact`` and ``document`` are token ranges in it."""

    ids: list[int]
    answer: list[int]
    fact: range
    document: range


def ask(bench: Bench, settings: dict[str, Any], depth_percent: int) -> Asked:
    """The document with the fact in it, as a chat, and how an answer begins."""
    model, code = bench.model, settings["code"]
    document = model.decode(bench.text(settings["start"], settings["length"])).strip()
    cut = _paragraph_near(document, len(document) * depth_percent // 100)
    fact = text("lab.recall.prompt.fact", code=code)
    before = text("lab.recall.prompt.before")
    told = f"{document[:cut].strip()}\n\n{fact}\n\n{document[cut:].strip()}"
    ids = model.encode(f"{before}\n\n{told}\n\n{text('lab.recall.prompt.question')}", True)
    begun = _plain_ids(bench, text("lab.recall.prompt.answer"))
    return Asked(
        ids=[*ids, *begun],
        answer=_plain_ids(bench, f" {code}"),
        fact=_tokens_of(bench, ids, fact),
        document=_tokens_of(bench, ids, told),
    )


def _plain_ids(bench: Bench, words: str) -> list[int]:
    ids: list[int] = bench.model.tokenizer(words, add_special_tokens=False)["input_ids"]
    return ids


def _paragraph_near(document: str, place: int) -> int:
    """The start of a paragraph near ``place``; of a word when there is only one paragraph."""
    for gap in ("\n\n", "\n", " "):
        starts = [i for i in range(len(document)) if document.startswith(gap, i)]
        if starts:
            return min(starts, key=lambda start: abs(start - place))
    return place


def _tokens_of(bench: Bench, ids: list[int], words: str) -> range:
    """The tokens that hold a byte of the last place where ``words`` stand."""
    raws = [label.raw for label in bench.model.labels(ids)]
    begin = b"".join(raws).rfind(words.encode())
    edges = np.cumsum([0, *(len(raw) for raw in raws)])
    first = int(np.searchsorted(edges, begin, side="right")) - 1
    return range(first, int(np.searchsorted(edges, begin + len(words.encode()), side="left")))


class _Look:
    """Attention of a step's last row on some tokens, by layer and head."""

    def __init__(self, tokens: range) -> None:
        self._tokens = tokens
        self.mass: list[Tensor] = []  # (H,) of each layer

    def __call__(self, layer: int, result: Attention, step: StepPlan) -> None:
        total = torch.zeros(result.lse.shape[1], dtype=torch.float64)
        for start, weights in result.weights():
            low, high = (min(max(0, edge - start), weights.shape[-1]) for edge in _edges(self._tokens))
            total += weights[0, :, -1, low:high].double().sum(-1).cpu()
        self.mass.append(total)


def _edges(tokens: range) -> tuple[int, int]:
    return tokens.start, tokens.stop


def _cache(name: str, settings: dict[str, Any], head_dim: int) -> CacheConfig:
    sinks, window = settings["sinks"], settings["window"]
    match name:
        case "full":
            return CacheConfig()
        case "window":
            return CacheConfig(0, sinks + window, Middle.EVICT)
        case "sinks":
            return CacheConfig(sinks, window, Middle.EVICT)
        case _:
            group = math.gcd(64, head_dim)
            key, value = (QuantConfig.parse(f"int{bits}:token:g{group}:absmax") for bits in (8, 4))
            return CacheConfig(sinks, window, Middle.QUANTIZE, 64, key, value, offload=Offload.HOST)


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    """Refuse a model that cannot chat, a prompt longer than its context, and groups that do not fit."""
    facts = bench.model.facts
    for depth in settings["depths"]:
        asked = ask(bench, settings, int(depth))
        tokens = len(asked.ids) + _ANSWER_TOKENS
        if tokens > facts.context_tokens:
            raise ConfigError("lab_context", tokens=tokens, context=facts.context_tokens)
    for name in settings["caches"]:
        bench.model.new_session(_cache(name, settings, facts.head_dim))


def _work(settings: dict[str, Any]) -> int:
    return int(settings["length"]) * len(settings["caches"]) * len(settings["depths"])


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one cache made of one prompt."""

    words: str
    right: bool  # the words contain the number
    logprobs: list[float]  # of the right answer's tokens
    mass: float
    peak: float
    evicted: bool
    nll: list[float]  # of the document's scored rows

    @property
    def probability(self) -> float:
        """Of the whole right answer."""
        return math.exp(sum(self.logprobs))


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    answers: dict[tuple[str, str], _Answer] = {}
    for name in settings["caches"]:
        for depth in settings["depths"]:
            asked = ask(bench, settings, int(depth))
            session = bench.model.new_session(_cache(name, settings, bench.model.facts.head_dim))
            try:
                answers[name, depth] = yield from _asked(bench, session, asked, settings)
            finally:
                session.observer = None
                session.reset()
    return _result(bench, settings, answers)


def _asked(
    bench: Bench, session: CacheSession, asked: Asked, settings: dict[str, Any]
) -> Generator[Tokens, None, _Answer]:
    """Read all but the last row, look at what the last one reads, and let the model go on."""
    nll: list[float] = []
    first_scored = settings["sinks"] + settings["window"]
    last, told = len(asked.ids) - 1, 0
    for start in range(0, last, CHUNK_SIZE):
        chunk = asked.ids[start : min(start + CHUNK_SIZE, last)]
        scored = list(range(max(start, first_scored), min(start + len(chunk), asked.document.stop - 1)))
        logits = bench.model.forward(chunk, session, last_only=False, rows=[row - start for row in scored])
        nll += nll_of_sample(logits, asked.ids, scored).tolist()
        read = (start + len(chunk)) * settings["length"] // last
        yield read - told
        told = read
    look = _Look(asked.fact)
    session.observer = look
    logits = bench.model.forward(asked.ids[-1:], session, last_only=True)
    session.observer = None
    mass = torch.stack(look.mass)
    words = _greedy(bench, copy.deepcopy(session), logits)
    return _Answer(
        words=words,
        right=str(settings["code"]) in words,
        logprobs=_forced(bench, session, asked.answer, logits),
        mass=float(mass.mean()),
        peak=float(mass.max()),
        evicted=session.plan.config.middle is Middle.EVICT
        and session.plan.window_start(last) >= asked.fact.stop,
        nll=nll,
    )


def _greedy(bench: Bench, session: CacheSession, logits: Tensor) -> str:
    """What the model says next, its likeliest token each time."""
    said: list[int] = []
    while len(said) < _ANSWER_TOKENS:
        token = int(logits[-1].argmax())
        if token in bench.model.eos_ids:
            break
        said.append(token)
        logits = bench.model.forward([token], session, last_only=True)
    session.reset()
    return bench.model.decode(said).strip()


def _forced(bench: Bench, session: CacheSession, answer: list[int], logits: Tensor) -> list[float]:
    """Log-probability of each token of the right answer, given those before it."""
    rows = [logits[-1:]]
    if len(answer) > 1:
        rows.append(bench.model.forward(answer[:-1], session, last_only=False))
    logprobs = torch.log_softmax(torch.cat(rows), dim=-1)
    taken: list[float] = logprobs[range(len(answer)), answer].double().tolist()
    return taken


def _result(bench: Bench, settings: dict[str, Any], answers: dict[tuple[str, str], _Answer]) -> LabResult:
    caches, depths = settings["caches"], settings["depths"]
    rows: list[list[Cell]] = []
    for (name, depth), answer in answers.items():
        mean = math.exp(sum(answer.logprobs) / len(answer.logprobs))
        rows.append(
            [_name(name), int(depth), answer.words, _yes(answer.right), answer.probability, mean, answer.mass,
             answer.peak, _yes(not answer.evicted)]
        )  # fmt: skip

    arrays = {
        "probability": [[answers[name, d].probability for d in depths] for name in caches],
        "fact_mass": [[answers[name, d].mass for d in depths] for name in caches],
        "fact_peak": [[answers[name, d].peak for d in depths] for name in caches],
    }
    fluency = [_perplexity([x for d in depths for x in answers[name, d].nll]) for name in caches]
    columns: list[Any] = [
        ("cache", "text"), ("depth_percent", "count"), ("answer", "text"), ("right", "text"),
        ("probability", "share"), ("token_probability", "share"), ("fact_mass", "share"),
        ("fact_peak", "share"), ("fact_held", "text"),
    ]  # fmt: skip
    fluent = table(
        [("cache", "text"), ("ppl_document", "ppl")],
        [[_name(name), value] for name, value in zip(caches, fluency, strict=True)],
    )
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=bench.model.facts,
        text_sha256=bench.corpus.sha256,
        finding=_finding(answers, fluent),
        tables={"answers": table(columns, rows), "fluency": fluent},
        arrays={key: np.asarray(values) for key, values in arrays.items()},
        marks={"caches": [_name(name) for name in caches], "depths": [int(depth) for depth in depths]},
    )


def _perplexity(nll: list[float]) -> float | None:
    return math.exp(sum(nll) / len(nll)) if nll else None


def _name(cache: str) -> str:
    return text(f"lab.recall.control.caches.option.{cache}")


def _yes(is_so: bool) -> str:
    return text("lab.recall.yes") if is_so else text("lab.recall.no")


def _finding(answers: dict[tuple[str, str], _Answer], fluent: Table) -> str:
    """What the numbers say, whichever way they point."""
    told = []
    for (label, ppl), cache in zip(fluent.rows, dict.fromkeys(name for name, _ in answers), strict=True):
        parts = [
            text("lab.recall.finding.at", depth=depth, probability=format_share(answer.probability))
            for (name, depth), answer in answers.items()
            if name == cache
        ]
        worth = f"{ppl:.2f}" if isinstance(ppl, float) else "–"
        told.append(text("lab.recall.finding.cache", name=label, ppl=worth, parts=", ".join(parts)))
    held = [answer.right for answer in answers.values() if not answer.evicted]
    lost = [answer.right for answer in answers.values() if answer.evicted]
    summary = text(
        "lab.recall.finding.summary",
        held=len(held), recalled=sum(held), lost=len(lost), guessed=sum(lost),
    )  # fmt: skip
    told.append(summary)
    if held and not sum(held):
        told.append(text("lab.recall.finding.unable"))
    return " ".join(told)


EXPERIMENT = Experiment(info=INFO, work=_work, run=_run, check=_check)
