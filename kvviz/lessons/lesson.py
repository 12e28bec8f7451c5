"""What a lesson is, and how a prediction is judged by a run's numbers.

Knows results, no sentence and no lesson. A question's truth is a function of the evidence; where the
measurement lies so near to an edge that it could have fallen on either side, both sides count as right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kvviz.errors import ConfigError
from kvviz.experiment import LabResult, Table

Kind = Literal["right", "near", "wrong"]
#: How an estimate is written and read: ``share`` is asked in percent, ``gib`` and ``bits`` as they stand.
Unit = Literal["count", "share", "bytes", "gib", "bits"]
Answer: TypeAlias = str | float
Facts: TypeAlias = dict[str, str]
Source = Literal["stored", "live"]

#: How near to an edge (relative) a value may lie to count on both sides of it.
EDGE_MARGIN = 0.05


@dataclass(frozen=True, slots=True)
class Task:
    """An experiment of the laboratory with its settings; its stored run has the task's name."""

    name: str
    experiment: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The results of a lesson's tasks by name, and where they come from."""

    results: Mapping[str, LabResult]
    source: Source = "stored"

    def rows(self, task: str, table: str) -> list[dict[str, Any]]:
        """A table's rows as mappings from column to cell."""
        found = self.results[task].tables[table]
        keys = [column.key for column in found.columns]
        return [dict(zip(keys, row, strict=True)) for row in found.rows]


@dataclass(frozen=True, slots=True)
class Truth:
    """What a run says to a question: the best answer, all that are accepted, and the number behind it."""

    best: Answer
    accepted: tuple[Answer, ...]
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One of ``options``. Texts: ``lesson.<lesson>.q.<key>.ask|option.<option>|found.<best option>``."""

    key: str
    options: tuple[str, ...]
    truth: Callable[[Evidence], Truth]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number. Right within ``right`` (relative; ``share``: absolute), near within ``near``.

    Texts: ``lesson.<lesson>.q.<key>.ask|found``.
    """

    key: str
    unit: Unit
    truth: Callable[[Evidence], float]
    right: float
    near: float
    high: float = 1e15


@dataclass(frozen=True, slots=True)
class Pick:
    """One of ``options``, scored: ``scores`` gives each a number in 0..1, 1 for the best, None for one that
    is not allowed. Texts: ``lesson.<lesson>.q.<key>.ask|option.<option>|found|refused``."""

    key: str
    options: tuple[str, ...]
    scores: Callable[[Evidence], dict[str, float | None]]
    #: what is said of the picked option
    facts: Callable[[Evidence, str], Facts]


Question: TypeAlias = Choice | Estimate | Pick


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a prediction stands: ``score`` is 1 for right, 0.5 for near, 0 for wrong, or a pick's own."""

    kind: Kind
    answer: Answer
    truth: Truth
    score: float


def _no_facts(evidence: Evidence) -> Facts:
    """The facts of a lesson that quotes nothing."""
    return {}


def _no_tables(evidence: Evidence) -> dict[str, Table]:
    """The computed tables of a lesson that computes nothing."""
    return {}


@dataclass(frozen=True, slots=True)
class Lesson:
    """One screen. Texts: ``lesson.<key>.title|story|explain|look_for`` and those of its questions.

    ``figures`` are (task, panel), ``tables`` (task, table); ``facts`` fills the fields of what is said after
    the run, ``given`` those of what is asked before it (from the stored run). Where ``given`` speaks of one
    model's shape (``bound``), the lesson cannot be run on another.
    """

    key: str
    tasks: tuple[Task, ...]
    questions: tuple[Question, ...]
    figures: tuple[tuple[str, str], ...]
    tables: tuple[tuple[str, str], ...]
    facts: Callable[[Evidence], Facts] = _no_facts
    given: Callable[[Evidence], Facts] = _no_facts
    computed: Callable[[Evidence], dict[str, Table]] = _no_tables
    bound: bool = False


def binned(value: float, edges: Sequence[float], options: Sequence[str]) -> Truth:
    """The option whose range holds ``value``: ``edges`` separate neighbours; near one, both count."""
    place = sum(value >= edge for edge in edges)
    accepted = [options[place]]
    for i, edge in enumerate(edges):
        if abs(value - edge) <= EDGE_MARGIN * abs(edge):
            accepted += [option for option in options[i : i + 2] if option not in accepted]
    return Truth(options[place], tuple(accepted), value)


def of_two(first: float, second: float, options: Sequence[str], factor: float = 1.25) -> Truth:
    """Which of two positive numbers is larger: ``options`` are (first, second, about the same). Within
    ``factor`` of each other they are about the same."""
    ratio = first / second if second > 0 else math.inf
    more, less, same = options
    if ratio >= factor:
        best = more
    elif ratio <= 1 / factor:
        best = less
    else:
        best = same
    accepted = [best]
    for edge, other in ((factor, more), (1 / factor, less)):
        if abs(ratio - edge) <= EDGE_MARGIN * edge:
            accepted += [option for option in (other, same) if option not in accepted]
    return Truth(best, tuple(accepted), ratio)


def yes_no(is_so: bool) -> Truth:
    """``yes`` or ``no``."""
    best = "yes" if is_so else "no"
    return Truth(best, (best,), float(is_so))


def read_answer(question: Question, given: object) -> Answer:
    """A prediction as it comes from a page, checked.

    Raises:
        ConfigError: nothing was given, or no option, or no number in the question's range.
    """
    if given is None or given == "":
        raise ConfigError("lesson_empty")
    if not isinstance(question, Estimate):
        if given not in question.options:
            raise ConfigError(
                "unknown_choice", name=question.key, value=given, choices=", ".join(question.options)
            )
        return str(given)
    number = _number(given)
    most = 100.0 if question.unit == "share" else question.high
    if number is None or not 0 <= number <= most:
        raise ConfigError("lesson_number", value=given, high=f"{most:g}")
    return number / 100 if question.unit == "share" else number


def _number(given: object) -> float | None:
    if isinstance(given, bool):
        return None
    try:
        number = float(str(given).replace(",", "").strip())
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def check(question: Question, answer: Answer, evidence: Evidence) -> Verdict:
    """Judge ``answer`` by the numbers of ``evidence``."""
    match question:
        case Choice():
            truth = question.truth(evidence)
            is_right = answer in truth.accepted
            return Verdict("right" if is_right else "wrong", answer, truth, float(is_right))
        case Estimate():
            return _check_estimate(question, float(answer), question.truth(evidence))
        case Pick():
            return _check_pick(question, str(answer), question.scores(evidence))


def _check_estimate(question: Estimate, answer: float, value: float) -> Verdict:
    off = abs(answer - value)
    if question.unit != "share":
        off = off / abs(value) if value else math.inf if off else 0.0
    off -= 1e-9  # what lies on the edge belongs to the better side
    kind: Kind = "right" if off <= question.right else "near" if off <= question.near else "wrong"
    score = {"right": 1.0, "near": 0.5, "wrong": 0.0}[kind]
    return Verdict(kind, answer, Truth(value, (value,), value), score)


def _check_pick(question: Pick, answer: str, scores: dict[str, float | None]) -> Verdict:
    allowed = {option: score for option, score in scores.items() if score is not None}
    best = max(allowed, key=lambda option: allowed[option], default="")
    score = scores[answer]
    if score is None:
        return Verdict("wrong", answer, Truth(best, (best,)), 0.0)
    is_best = score >= 1 - 1e-9
    kind: Kind = "right" if is_best else "near" if score >= _PICK_NEAR else "wrong"
    return Verdict(kind, answer, Truth(best, (best,)), score)


_PICK_NEAR = 0.5


@dataclass(frozen=True, slots=True)
class Score:
    """Points of a lesson or of several: ``got`` of ``most``."""

    got: float = 0.0
    most: int = 0

    @classmethod
    def of(cls, verdicts: Sequence[Verdict]) -> Score:
        """One point a question at most."""
        return cls(sum(verdict.score for verdict in verdicts), len(verdicts))
