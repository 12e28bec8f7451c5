"""One comparison as it was asked and as it came out: plain, frozen, and the same again after JSON.

A :class:`Comparison` holds, for one to four configurations over one model:

* ``request``: what was asked (:class:`ComparisonRequest` as plain values; :attr:`Comparison.asked` reads it),
  the seed among it;
* ``model`` (with its weights' hash), ``machine``, ``versions``, ``created``: measured with what, and when;
* ``text``: the text whose forced tokens were scored, and what full precision made of it row by row; None
  when no text was scored;
* ``entries``: each configuration's free generation (tokens, text, times, memory, where it parts from the
  first configuration) and its score (perplexity, KL, top-1 agreement, NLL and KL of every counted row, worst
  tokens).

:meth:`Comparison.rows` gives every number of the table with its unit and its kind: ``measured`` in this run,
``computed`` by the formula that ``compare.measure.<key>.info`` names, or ``stored`` once it was loaded from a
file. Words about it are in ``kvviz.comparison_words``. Attention maps are not in here: they belong to the
records of the runs. This module knows no model, no tensor and no drawing, and measures nothing.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import TypeAdapter, ValidationError

from kvviz.comparison_request import ComparisonRequest
from kvviz.config import CacheConfig
from kvviz.errors import KvvizError
from kvviz.events import MemorySnapshot, ModelFacts, TokenLabel

COMPARISON_VERSION = 1
FORMAT = "kvviz-comparison"

Kind = Literal["measured", "computed", "stored"]
Unit = Literal["count", "share", "change", "nats", "ppl", "bytes", "ratio", "bits", "ms", "place"]
Cell: TypeAlias = int | float | None


@dataclass(frozen=True, slots=True)
class Machine:
    """What a comparison was computed on; the accelerator, if any, is the model's ``device``."""

    system: str
    processor: str
    cores: int
    memory_bytes: int | None  # None when the system does not tell
    accelerator: str = ""


@dataclass(frozen=True, slots=True)
class TextScore:
    """The scored text, and full precision on it. ``nll`` are nats of rows ``skip .. tokens - 2``."""

    name: str
    sha256: str
    tokens: int
    rows: int
    ppl: float
    nll: tuple[float, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class WorstToken:
    """A token on which a configuration lost most. ``position`` counts the text's slice from 0; ``before`` is
    the text before it; ``choice`` is what the configuration held most likely there, ``choice_full`` what full
    precision did. NLL and KL in nats."""

    position: int
    token: str
    before: str
    nll_full: float
    nll: float
    kl: float
    choice_full: str
    choice: str


@dataclass(frozen=True, slots=True)
class Score:
    """One configuration on the text. ``nll`` and ``kl_rows`` are in the order of :attr:`TextScore.nll`."""

    ppl: float
    kl: float
    top1: float
    nll: tuple[float, ...]
    kl_rows: tuple[float, ...]
    worst: tuple[WorstToken, ...]
    memory: MemorySnapshot
    seconds: float


@dataclass(frozen=True, slots=True)
class Generation:
    """One configuration's text. ``status`` is a record's: ``eos``, ``length``, ``stopped`` or ``failed``.

    ``labels`` are (display, bytes in hex) of the generated tokens. ``divergence`` is the index of the first
    generated token that differs from the first configuration's, None while there is none. ``memory`` is that
    of the last step.
    """

    status: str
    message: str
    text: str
    token_ids: tuple[int, ...]
    labels: tuple[tuple[str, str], ...]
    ttft_ms: float | None
    tpot_ms: float | None
    step_ms: tuple[float, ...]
    memory: MemorySnapshot | None
    divergence: int | None

    @property
    def token_labels(self) -> list[TokenLabel]:
        """Labels as records have them."""
        return [TokenLabel(display, bytes.fromhex(raw)) for display, raw in self.labels]


@dataclass(frozen=True, slots=True)
class Entry:
    """One configuration: its name, its settings (``CacheConfig.to_dict()``), what it did. ``score`` is None
    when no text was scored, or scoring was stopped."""

    label: str
    cache: dict[str, Any]
    generation: Generation
    score: Score | None


class Measure(NamedTuple):
    """One number of the table: words ``compare.measure.<key>.label|info``."""

    key: str
    unit: Unit
    kind: Kind


MEASURES = (
    Measure("ppl", "ppl", "measured"),
    Measure("ppl_change", "change", "computed"),
    Measure("kl", "nats", "measured"),
    Measure("top1", "share", "measured"),
    Measure("divergence", "place", "measured"),
    Measure("generated", "count", "measured"),
    Measure("kv_bytes", "bytes", "measured"),
    Measure("full_16bit_bytes", "bytes", "computed"),
    Measure("ratio_16bit", "ratio", "computed"),
    Measure("ratio_own", "ratio", "computed"),
    Measure("effective_bits", "bits", "measured"),
    Measure("cache_bits", "bits", "measured"),
    Measure("ttft_ms", "ms", "measured"),
    Measure("tpot_ms", "ms", "measured"),
)


class Row(NamedTuple):
    """A number of every configuration; ``kind`` is ``stored`` when the comparison was loaded."""

    measure: Measure
    kind: Kind
    values: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """See the module's own words. ``is_stored`` is no part of the file: whatever was loaded is stored."""

    request: dict[str, Any]
    model: ModelFacts
    machine: Machine
    versions: dict[str, str]
    created: str  # UTC, ISO 8601
    prompt_tokens: int
    text: TextScore | None
    entries: tuple[Entry, ...]
    elapsed_ms: float
    is_stored: bool = False

    @property
    def asked(self) -> ComparisonRequest:
        """The request."""
        return ComparisonRequest.from_dict(self.request)

    def value(self, key: str, index: int) -> Cell:
        """One number of configuration ``index``; None where it was not measured."""
        entry = self.entries[index]
        score, made = entry.score, entry.generation
        match key:
            case "ppl" | "kl" | "top1":
                return None if score is None else float(getattr(score, key))
            case "ppl_change":
                return None if score is None or self.text is None else score.ppl / self.text.ppl - 1
            case "divergence":
                return made.divergence
            case "generated":
                return len(made.token_ids)
            case "ttft_ms" | "tpot_ms":
                value: float | None = getattr(made, key)
                return value
            case _:
                return None if made.memory is None else self._bytes(key, made.memory)

    def _bytes(self, key: str, memory: MemorySnapshot) -> Cell:
        full = {
            "16bit": self.model.kv_bytes_per_token(2) * memory.tokens,
            "own": self.model.kv_bytes_per_token(self.model.dtype_bytes) * memory.tokens,
        }
        match key:
            case "kv_bytes":
                return memory.used_bytes
            case "full_16bit_bytes":
                return full["16bit"]
            case "ratio_16bit" | "ratio_own":
                return full[key.removeprefix("ratio_")] / memory.used_bytes if memory.used_bytes else None
            case "effective_bits":
                return memory.effective_bits
            case "cache_bits":
                return memory.cache_bits
        raise KeyError(key)

    def rows(self) -> tuple[Row, ...]:
        """Every number of the table: one row a measure, one value a configuration."""
        return tuple(
            Row(
                measure,
                "stored" if self.is_stored else measure.kind,
                tuple(self.value(measure.key, i) for i in range(len(self.entries))),
            )
            for measure in MEASURES
        )

    # -- JSON ----------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, the numbers of the table among them."""
        plain: dict[str, Any] = _adapter().dump_python(self, mode="json", exclude={"is_stored"})
        numbers = {row.measure.key: list(row.values) for row in self.rows()}
        return {"format": FORMAT, "version": COMPARISON_VERSION, **plain, "numbers": numbers}

    def to_json(self) -> str:
        """One JSON object.

        Raises:
            ValueError: a number that is not finite; an engine makes none.
        """
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, content: str) -> Comparison:
        """Read what :meth:`to_json` wrote, checked like any input; its numbers are then ``stored``.

        Raises:
            KvvizError: not a comparison, another version of the format, or values that contradict its rules.
        """
        try:
            plain = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise KvvizError("comparison_unreadable", reason="JSON") from error
        if not isinstance(plain, dict) or plain.get("format") != FORMAT:
            raise KvvizError("comparison_unreadable", reason="format")
        if plain.get("version") != COMPARISON_VERSION:
            raise KvvizError(
                "comparison_version", found=str(plain.get("version"))[:20], known=COMPARISON_VERSION
            )
        try:
            read = _adapter().validate_json(content, strict=True)
            read._check()
            read.to_json()  # what is not finite is refused here
        except ValidationError as error:
            place = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise KvvizError("comparison_unreadable", reason=place[:80]) from error
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise KvvizError("comparison_unreadable", reason=type(error).__name__) from error
        return dataclasses.replace(read, is_stored=True)

    def _check(self) -> None:
        """Refuse what no engine writes.

        Raises:
            KvvizError, ValueError: says what.
        """
        asked = self.asked
        if [(e.label, CacheConfig.from_dict(e.cache)) for e in self.entries] != list(asked.configurations):
            raise ValueError("entries are not those that were asked")
        counted = 0 if self.text is None else self.text.rows
        scores = [entry.score for entry in self.entries if entry.score is not None]
        if self.text is None and scores:
            raise ValueError("scores without a text")
        lists = [row for score in scores for row in (score.nll, score.kl_rows)]
        lists += [self.text.nll] if self.text else []
        if any(len(row) != counted for row in lists) or (self.text and self.text.ppl <= 0):
            raise ValueError("rows do not match")
        for made in (entry.generation for entry in self.entries):
            if len(made.labels) != len(made.token_ids):
                raise ValueError("labels do not match")
            _ = made.token_labels


@cache
def _adapter() -> TypeAdapter[Comparison]:
    return TypeAdapter(Comparison)


@dataclass(frozen=True, slots=True)
class ScoreProgress:
    """``done`` of ``total`` tokens went through the model while scoring, all configurations together."""

    done: int
    total: int
