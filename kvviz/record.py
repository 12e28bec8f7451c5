"""What is remembered of a run: events applied one after another, saved without pickle.

A record knows no engine and no drawing; replay, stored runs and the live page all go through ``apply``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvviz import timeline
from kvviz.errors import KvvizError
from kvviz.events import (
    MASS_TIERS,
    AttentionRows,
    Event,
    HeadSummary,
    MapGrid,
    MemorySnapshot,
    ModelFacts,
    PrefillProgress,
    RunFailed,
    RunFinished,
    RunStarted,
    SealError,
    Span,
    StepTimeline,
    Tier,
    TokenGenerated,
    TokenLabel,
)

RECORD_VERSION = 2


@dataclass
class RunRecord:
    """One run, growing event by event.

    ``status``: ``empty``, ``prefill``, ``running``, ``eos``, ``length``, ``stopped`` or ``failed``.
    Per-step lists have one entry for each generated token; index 0 belongs to the prompt's last row.
    """

    status: str = "empty"
    run_id: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    model: ModelFacts | None = None
    prompt_ids: list[int] = field(default_factory=list)
    generated_ids: list[int] = field(default_factory=list)
    labels: list[TokenLabel] = field(default_factory=list)  # prompt, then generated
    text: str = ""
    prefill_tokens: int = 0
    logprobs: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    spans: list[tuple[Span, ...]] = field(default_factory=list)
    memory: list[MemorySnapshot] = field(default_factory=list)
    tier_mass: list[NDArray[np.float32]] = field(default_factory=list)
    received: list[NDArray[np.float32]] = field(default_factory=list)
    head_summary: list[HeadSummary] = field(default_factory=list)
    timelines: list[StepTimeline | None] = field(default_factory=list)
    seal_error: SealError | None = None
    grid: MapGrid | None = None
    attention: NDArray[np.float16] | None = None  # (L, H, cells, cells)
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    message: str = ""
    is_stored: bool = False  # read from a file: nothing in it was measured now; no part of the file

    @property
    def kind(self) -> str:
        """``measured``, or ``stored`` when the record was read from a file."""
        return "stored" if self.is_stored else "measured"

    @property
    def label(self) -> str:
        """The configuration's name."""
        return str(self.config.get("label", ""))

    @property
    def is_live(self) -> bool:
        """True while more events are expected."""
        return self.status in ("prefill", "running")

    @property
    def token_ids(self) -> list[int]:
        """Prompt and generated ids."""
        return self.prompt_ids + self.generated_ids

    @property
    def rows(self) -> int:
        """Query rows that were read: the newest token has none."""
        return len(self.token_ids) - 1 if self.generated_ids else self.prefill_tokens

    def apply(self, event: Event) -> None:
        """Fold one event in."""
        match event:
            case RunStarted():
                self._start(event)
            case PrefillProgress():
                self.prefill_tokens = event.done_tokens
            case AttentionRows():
                self._add_rows(event)
            case TokenGenerated():
                self._add_token(event)
            case RunFinished():
                self.status = event.reason
                self.text += event.text_tail
                self.ttft_ms, self.tpot_ms = event.ttft_ms, event.tpot_ms
            case RunFailed():
                self.status = "failed"
                self.message = event.message

    def _start(self, event: RunStarted) -> None:
        self.status = "prefill"
        self.run_id, self.config, self.model = event.run_id, event.config, event.model
        self.prompt_ids = list(event.prompt_ids)
        self.labels = list(event.prompt_labels)
        self.grid = event.grid

    def _add_rows(self, event: AttentionRows) -> None:
        if self.grid is None:
            return
        n_layers, n_heads, rows, columns = event.values.shape
        if self.attention is None:
            cells = len(self.grid.edges) - 1
            self.attention = np.zeros((n_layers, n_heads, cells, cells), dtype=np.float16)
        place = self.attention[:, :, event.first_row : event.first_row + rows, :columns]
        np.maximum(place, event.values, out=place)

    def _add_token(self, event: TokenGenerated) -> None:
        self.status = "running"
        self.generated_ids.append(event.token_id)
        self.labels.append(event.label)
        self.text += event.text_delta
        self.logprobs.append(event.logprob)
        self.step_ms.append(event.step_ms)
        self.ttft_ms = self.step_ms[0]
        if len(self.step_ms) > 1:
            self.tpot_ms = float(np.median(self.step_ms[1:]))
        state = event.state
        self.spans.append(state.spans)
        self.memory.append(state.memory)
        self.tier_mass.append(state.tier_mass)
        self.received.append(state.received)
        self.head_summary.append(state.head_summary)
        self.timelines.append(state.timeline)
        self.seal_error = state.seal_error

    # -- storage ---------------------------------------------------------------------------------

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """A header of plain JSON values, and plain arrays."""
        header = {
            "version": RECORD_VERSION,
            "mass_tiers": [tier.value for tier in MASS_TIERS],
            "status": self.status,
            "run_id": self.run_id,
            "config": self.config,
            "model": dataclasses.asdict(self.model) if self.model else None,
            "labels": [[label.display, label.raw.hex()] for label in self.labels],
            "text": self.text,
            "prefill_tokens": self.prefill_tokens,
            "spans": [[[s.tier.value, s.start, s.stop] for s in spans] for spans in self.spans],
            "memory": [dataclasses.asdict(snapshot) for snapshot in self.memory],
            "tokens_per_cell": self.grid.tokens_per_cell if self.grid else None,
            "sealed_tokens": self.seal_error.sealed_tokens if self.seal_error else None,
            "ttft_ms": self.ttft_ms,
            "tpot_ms": self.tpot_ms,
            "message": self.message,
        }
        arrays: dict[str, NDArray[Any]] = {
            "prompt_ids": np.asarray(self.prompt_ids, dtype=np.int64),
            "generated_ids": np.asarray(self.generated_ids, dtype=np.int64),
            "logprobs": np.asarray(self.logprobs, dtype=np.float64),
            "step_ms": np.asarray(self.step_ms, dtype=np.float64),
        }
        if self.tier_mass:
            arrays["tier_mass"] = np.stack(self.tier_mass)
            arrays["received"] = np.concatenate(self.received)
            arrays["received_lengths"] = np.asarray([len(r) for r in self.received], dtype=np.int64)
            for name in _SUMMARIES:
                arrays[f"head_{name}"] = np.stack([getattr(summary, name) for summary in self.head_summary])
        if self.grid is not None:
            arrays["edges"] = self.grid.edges
        if self.attention is not None:
            arrays["attention"] = self.attention
        arrays |= timeline.to_arrays(self.timelines)
        if self.seal_error is not None:
            for name in _ENERGIES:
                arrays[name] = getattr(self.seal_error, name)
        return header, arrays

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> RunRecord:
        """Inverse of :meth:`to_parts`; checks the version and nothing else.

        Raises:
            KvvizError: another format version.
        """
        if header["version"] != RECORD_VERSION:
            raise KvvizError("record_version", found=header["version"], known=RECORD_VERSION)
        record = cls(
            status=header["status"],
            run_id=header["run_id"],
            config=header["config"],
            model=ModelFacts(**header["model"]) if header["model"] else None,
            prompt_ids=arrays["prompt_ids"].tolist(),
            generated_ids=arrays["generated_ids"].tolist(),
            labels=[TokenLabel(display, bytes.fromhex(raw)) for display, raw in header["labels"]],
            text=header["text"],
            prefill_tokens=header["prefill_tokens"],
            logprobs=arrays["logprobs"].tolist(),
            step_ms=arrays["step_ms"].tolist(),
            spans=[tuple(Span(Tier(t), a, b) for t, a, b in spans) for spans in header["spans"]],
            memory=[MemorySnapshot(**snapshot) for snapshot in header["memory"]],
            ttft_ms=header["ttft_ms"],
            tpot_ms=header["tpot_ms"],
            message=header["message"],
            timelines=timeline.from_arrays(arrays, len(header["memory"])),
        )
        if "tier_mass" in arrays:
            record.tier_mass = list(arrays["tier_mass"])
            ends = np.cumsum(arrays["received_lengths"])[:-1]
            record.received = np.split(arrays["received"], ends)
            columns = (arrays[f"head_{name}"] for name in _SUMMARIES)
            record.head_summary = [
                HeadSummary(int(rows), *rest) for rows, *rest in zip(*columns, strict=True)
            ]
        if "edges" in arrays:
            record.grid = MapGrid(arrays["edges"], header["tokens_per_cell"])
        record.attention = arrays.get("attention")
        if "key_signal" in arrays:
            energies = {name: arrays[name] for name in _ENERGIES}
            record.seal_error = SealError(sealed_tokens=header["sealed_tokens"], **energies)
        return record

    def save(self, path: Path) -> None:
        """Write one ``.npz``: a JSON header and plain arrays, readable with ``allow_pickle=False``."""
        header, arrays = self.to_parts()
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        with path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: Path) -> RunRecord:
        """Read what :meth:`save` wrote.

        Raises:
            KvvizError: another format version.
        """
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        return cls.from_parts(json.loads(arrays.pop("header").tobytes().decode()), arrays)


_SUMMARIES = tuple(field.name for field in dataclasses.fields(HeadSummary))
_ENERGIES = ("key_signal", "key_error", "value_signal", "value_error")
_ENDED = ("eos", "length")


def first_divergence(record_a: RunRecord, record_b: RunRecord) -> int | None:
    """Index of the first generated token that differs.

    When one run's tokens begin the other's, the runs part where the shorter one ended, if it ended by itself
    (``eos`` or ``length``); a run that is live, stopped or failed has not parted. None while equal.
    """
    ids_a, ids_b = record_a.generated_ids, record_b.generated_ids
    for index, (a, b) in enumerate(zip(ids_a, ids_b, strict=False)):
        if a != b:
            return index
    if len(ids_a) == len(ids_b):
        return None
    shorter = record_a if len(ids_a) < len(ids_b) else record_b
    return len(shorter.generated_ids) if shorter.status in _ENDED else None
