"""What the page is built from: collaborators handed in, so that any of them can be a stand-in.

Knows no model and no gradio; holds nothing that two pages would share by accident.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from kvviz.comparison import Comparison, ScoreProgress
from kvviz.comparison_request import ComparisonRequest
from kvviz.config import CacheConfig, RunConfig
from kvviz.events import Event, ExactTile, LogitMap
from kvviz.experiment import ExperimentInfo, LabProgress, LabResult
from kvviz.host import Hosting
from kvviz.record import RunRecord
from kvviz.ui.desk import AtlasChoice, DeskStore
from kvviz.ui.lab_runs import LabRunStore
from kvviz.ui.lesson_course import CourseStore
from kvviz.ui.loading import Loader
from kvviz.ui.runs import RunStore
from kvviz.ui.switches import Switches


class Compare(Protocol):
    """The engine's lockstep comparison."""

    def __call__(
        self,
        model: Any,
        configs: Sequence[RunConfig],
        *,
        stop: threading.Event | None = None,
        capture_attention: bool = True,
    ) -> Iterator[Event]: ...


class Comparing(Protocol):
    """The engine's comparison with scores: events of the runs, progress, and in the end what came out."""

    def __call__(
        self, model: Any, request: ComparisonRequest, *, stop: threading.Event | None = None
    ) -> Iterator[Event | ScoreProgress | Comparison]: ...


class Lab(Protocol):
    """The laboratory."""

    def experiments(self) -> list[ExperimentInfo]: ...

    def perform(
        self, model: Any, name: str, given: Mapping[str, Any], *, stop: threading.Event | None = None
    ) -> Iterator[LabProgress | LabResult]: ...


class Score(Protocol):
    """The engine's score of one configuration."""

    def __call__(
        self, model: Any, ids: Sequence[int], cache: CacheConfig, *, skip: int,
        stop: threading.Event | None = None,
    ) -> Any: ...  # fmt: skip


class Summarize(Protocol):
    """The engine's summary of runs that have ended. ``created`` is when they began (UTC, ISO 8601)."""

    def __call__(self, records: Sequence[RunRecord], created: str) -> Comparison: ...


Progress = Callable[[int, int], None]


class Recompute(Protocol):
    """The engine's two ways to compute again what a record does not hold."""

    def exact_tile(
        self, model: Any, record: RunRecord, *, layer: int, rows: tuple[int, int], columns: tuple[int, int],
        stop: threading.Event | None = None, progress: Progress | None = None,
    ) -> ExactTile: ...  # fmt: skip

    def logit_map(
        self, model: Any, record: RunRecord, *, layer: int,
        stop: threading.Event | None = None, progress: Progress | None = None,
    ) -> LogitMap: ...  # fmt: skip


class PromptChoice(Protocol):
    """A ready prompt."""

    @property
    def key(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def use_chat_template(self) -> bool: ...


class ModelChoice(Protocol):
    """A model that is offered by name."""

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...


@dataclass(frozen=True)
class Presets:
    """Named cache settings."""

    names: Sequence[str]
    label: Callable[[str], str]
    cache: Callable[[str], CacheConfig]


#: Each keeps up to four records.
MAX_COMPARISONS = 4
#: The first map of a page: on the default model a plain sink, which the lowest layers lack.
OPENING_HEAD = (14, 1)


def _desks() -> DeskStore:
    return DeskStore(AtlasChoice(layer=OPENING_HEAD[0], head=OPENING_HEAD[1]))


@dataclass(frozen=True)
class AppContext:
    """Everything that one page application uses and owns."""

    compare: Compare
    comparing: Comparing
    lab: Lab
    recompute: Recompute
    summarize: Summarize
    loader: Loader
    models: Sequence[ModelChoice]
    presets: Presets
    prompts: Sequence[PromptChoice]
    default_model: str
    score: Score | None = None
    hosting: Hosting = field(default_factory=Hosting)
    opening: tuple[str, str] = ("full", "full-stack")
    runs: RunStore = field(default_factory=RunStore)
    api_calls: Switches = field(default_factory=Switches)
    comparisons: RunStore = field(default_factory=partial(RunStore, MAX_COMPARISONS))
    lab_runs: LabRunStore = field(default_factory=LabRunStore)
    desks: DeskStore = field(default_factory=_desks)
    courses: CourseStore = field(default_factory=CourseStore)
