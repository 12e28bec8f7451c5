"""What happened: the typed events an engine yields, and nothing that computes.

Arrays are numpy, already on the host and independent of the run; events know no torch and no page.
Shapes: ``L`` layers, ``H`` query heads, ``H_kv`` KV heads, ``D`` head_dim, ``T`` tokens seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray


class Tier(StrEnum):
    """Where a token's K and V are."""

    SINK = "sink"
    WINDOW = "window"
    EXACT = "exact"
    QUANTIZED = "quantized"
    OFFLOADED = "offloaded"
    EVICTED = "evicted"


#: Order of the last axis of every tier-mass array. The middle is the sum of the last three.
MASS_TIERS = (Tier.SINK, Tier.WINDOW, Tier.EXACT, Tier.QUANTIZED, Tier.OFFLOADED)

#: location ("device" | "host" | "disk") -> tier -> part -> bytes; quantizers name the parts: "codes",
#: "scales", "minima", "outliers", "outlier_places", "exact"
ByteTree: TypeAlias = dict[str, dict[str, dict[str, int]]]


class Span(NamedTuple):
    """Token positions ``[start, stop)`` that share a tier."""

    tier: Tier
    start: int
    stop: int


class TokenLabel(NamedTuple):
    """How one token is shown. ``raw`` are its bytes: joined over tokens they are the text's UTF-8."""

    display: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Everything a reader of a record must know about the model that made it."""

    name: str
    family: str
    weights_hash: str
    source: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    context_tokens: int
    vocab_size: int
    dtype: str
    dtype_bytes: int
    device: str
    weights_bytes: int
    commit: str = ""  # of the Hub's repository, as loaded; empty for weights from elsewhere

    @property
    def is_pinned(self) -> bool:
        """True where the name asks for exactly the commit that was loaded."""
        return bool(self.commit) and self.name.endswith(f"@{self.commit}")

    def kv_bytes_per_token(self, bytes_per_number: float) -> float:
        """``2 * L * H_kv * D * bytes``: K and V of one token over all layers."""
        return 2 * self.n_layers * self.n_kv_heads * self.head_dim * bytes_per_number


@dataclass(frozen=True, slots=True)
class MapGrid:
    """Cells of a token x token map: cell ``c`` covers tokens ``[edges[c], edges[c + 1])``.

    Sinks and the newest tokens have a cell each, between them ``tokens_per_cell`` tokens share one (the last
    of these cells may hold fewer); 1 means that every token has its own.
    """

    edges: NDArray[np.int64]
    tokens_per_cell: int


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """What the ledger counted after a step."""

    tokens: int
    used: ByteTree
    reserved: ByteTree
    effective_bits: float | None  # sealed K and V, metadata included; None when nothing is sealed
    cache_bits: float | None  # everything stored, per stored element

    @property
    def used_bytes(self) -> int:
        """All used bytes, every location, tier and part."""
        return sum_bytes(self.used)


def sum_bytes(tree: ByteTree) -> int:
    """The total of a byte tree."""
    return sum(n for tiers in tree.values() for parts in tiers.values() for n in parts.values())


@dataclass(frozen=True, slots=True)
class SealError:
    """Energies against the exact values at sealing time, summed over everything sealed so far.

    Arrays are ``(L, H_kv, D)`` float64 sums of squares, so any ratio (per layer, per channel) is exact.
    """

    key_signal: NDArray[np.float64]
    key_error: NDArray[np.float64]
    value_signal: NDArray[np.float64]
    value_error: NDArray[np.float64]
    sealed_tokens: int


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The prompt is tokenized and the cache is empty."""

    run: int
    run_id: str
    config: dict[str, Any]  # RunConfig.to_dict()
    model: ModelFacts
    prompt_ids: tuple[int, ...]
    prompt_labels: tuple[TokenLabel, ...]
    grid: MapGrid


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Some prompt tokens went through the model."""

    run: int
    done_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class AttentionRows:
    """Max-reduced attention probabilities of some query rows.

    ``values`` is ``(L, H, R, C)`` float16: cells of rows ``[first_row, first_row + R)`` of the grid
    against cells ``[0, C)``. A cell met twice keeps its maximum.
    """

    run: int
    first_row: int
    values: NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class HeadSummary:
    """What each head looked at: means over all query rows ``[0, rows)`` read so far, float32.

    ``first_mass`` ``(L, H)``: weight on token 0. ``tier_mass`` ``(L, H, len(MASS_TIERS))``: each row by the
    tiers as they were for it; sums to 1. ``entropy`` ``(L, H)``: ``-sum p ln p`` in nats. ``distance``
    ``(L, H)``: ``sum p (i - j)`` in tokens, from the query's position to the keys'.
    """

    rows: int
    first_mass: NDArray[np.float32]
    tier_mass: NDArray[np.float32]
    entropy: NDArray[np.float32]
    distance: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ExactTile:
    """Attention of one layer, token by token, recomputed from a record's token ids.

    Rows from ``first_row`` against columns from ``first_column``, both ``(H, R, C)`` float32. ``logits`` are
    ``q . k / sqrt(D)`` as the softmax had them. Where a row does not look, the probability is exactly 0 and
    the logit ``-inf``.
    """

    layer: int
    first_row: int
    first_column: int
    probability: NDArray[np.float32]
    logits: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LogitMap:
    """Recomputed logits of one layer, the maximum of every cell of a record's grid: ``(H, C, C)`` float32,
    ``-inf`` where no row looks."""

    layer: int
    values: NDArray[np.float32]


#: what a span of a :class:`StepTimeline` is; "wait": the device has nothing to do until something arrives;
#: "look": somebody watches the run (for figures) and it stands still meanwhile
TIMELINE_KINDS = ("compute", "copy_in", "copy_out", "host_attention", "wait", "look")
#: what is not as it could be: copies are synchronous; host memory is pageable, because page-locked memory was
#: refused; the host that computes is the device itself
TIMELINE_NOTES = ("copies_synchronous", "pageable", "host_is_device")


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """What happened when in one step (all chunks of a prompt are one), measured, one entry a span, by start.

    ``kinds`` ``(N,)`` are places in :data:`TIMELINE_KINDS`; ``layers`` ``(N,)``, ``L`` for what follows the
    last layer; ``start_ms`` and ``stop_ms`` ``(N,)`` count from the step's begin; ``n_bytes`` ``(N,)`` is
    what was copied, or for "host_attention" handed over (query, output and log-sum-exp). ``rows`` went
    through the model. ``notes`` are some of :data:`TIMELINE_NOTES`.
    """

    rows: int
    kinds: NDArray[np.uint8]
    layers: NDArray[np.int16]
    start_ms: NDArray[np.float32]
    stop_ms: NDArray[np.float32]
    n_bytes: NDArray[np.int64]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepState:
    """The cache after some rows: who lives where, what it weighs, what the newest row looked at.

    ``tier_mass`` is ``(L, H, len(MASS_TIERS))`` float32, summing to 1, of the newest query row.
    ``received`` is ``(T,)`` float32: the newest row's weight on each token, mean over layers and heads.
    ``head_summary`` is about all rows so far. ``timeline`` is there where blocks are offloaded.
    """

    spans: tuple[Span, ...]
    memory: MemorySnapshot
    tier_mass: NDArray[np.float32]
    received: NDArray[np.float32]
    head_summary: HeadSummary
    seal_error: SealError
    timeline: StepTimeline | None = None


@dataclass(frozen=True, slots=True)
class TokenGenerated:
    """One token was chosen. ``state`` is the cache after the row that chose it (the token's own K and V
    are not stored yet: the newest token has no row)."""

    run: int
    step: int  # 0 is the token that the prompt's last row chose
    token_id: int
    label: TokenLabel
    text_delta: str  # bytes-exact: incomplete characters wait for their rest
    logprob: float
    step_ms: float  # compute time of this run alone, other runs' turns excluded
    state: StepState


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run ended without an error."""

    run: int
    reason: str  # "eos" | "length" | "stopped"
    text_tail: str  # flushed incomplete characters
    ttft_ms: float | None
    tpot_ms: float | None


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run ended by an error; what was generated before stays valid."""

    run: int
    message: str


Event: TypeAlias = RunStarted | PrefillProgress | AttentionRows | TokenGenerated | RunFinished | RunFailed
