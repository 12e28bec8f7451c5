"""Where does the error arise, and what of it reaches the words? One quantizer pair, followed from the sealed
block to the next token.

Everything is taken from the run that is scored, while its tensors exist: the sessions keep the exact keys and
values beside what they seal. The error of a layer alone is that of its attention output when its own queries
read its own keys and values through codes instead of exactly; with all before it, that to the output of the
full-precision run.

Arrays (``L`` layers, ``H`` KV heads, ``D`` channels, ``B`` sealed blocks): for each side ``key`` and
``value``, ``{side}_heads (L, H)``, ``{side}_channels (L, H * D)`` and ``{side}_blocks (L, B)``, relative
errors of everything sealed; ``{side}_max (L,)``, the largest single error; ``alone (L,)`` and ``before
(L,)``, relative errors of the attention output over the counted rows. Marks: ``first`` (position of the
first sealed token), ``block_size``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kvviz.cache import CacheSession
from kvviz.catalogue import text
from kvviz.config import CacheConfig, Middle
from kvviz.engine import ScoreResult, scoring
from kvviz.errors import ConfigError
from kvviz.experiment import Cell, Control, ExperimentInfo, LabResult, Table, table
from kvviz.lab.bench import Bench, Experiment, Experimenting
from kvviz.lab.quant_bench import SIDES, check_text, snr_db
from kvviz.lab.twin import OutputSession, TwinSession
from kvviz.quant_config import QuantConfig
from kvviz.units import format_number, format_share

INFO = ExperimentInfo(
    "error",
    (
        Control("key", "quantizer", "int4:channel:g32:minmax"),
        Control("value", "quantizer", "int4:token:g64:minmax"),
        Control("start", "int", 3000, low=0, high=1_000_000),
        Control("length", "int", 1024, low=16, high=8192),
        Control("skip", "int", 256, low=0, high=8190),
    ),
    group="quant",
)


class _Follower:
    """Sums what the sessions show after each chunk; sealed blocks are looked at when all is read."""

    def __init__(self, n_layers: int, tokens: int, skip: int) -> None:
        self._tokens, self._skip = tokens, skip
        self.signal, self.lost = torch.zeros(2, 2, n_layers, dtype=torch.float64)  # alone, with all before
        self.sealed: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def __call__(self, full: CacheSession, tested: CacheSession) -> None:
        assert isinstance(full, OutputSession)
        assert isinstance(tested, TwinSession)
        for layer, output in tested.outputs.items():
            start = max(0, self._skip - (tested.seen_tokens - output.shape[2]))
            for place, reference in enumerate((tested.exact_outputs[layer], full.outputs[layer])):
                wide = reference[:, :, start:].double()
                self.signal[place, layer] += wide.square().sum().cpu()
                self.lost[place, layer] += (output[:, :, start:].double() - wide).square().sum().cpu()
        if tested.seen_tokens == self._tokens:
            self.sealed = {side: _energies(tested, side) for side in SIDES}

    @property
    def errors(self) -> NDArray[np.float64]:
        """``(2, L)``: relative errors of the layer alone, and with all before it."""
        ratio: NDArray[np.float64] = (self.lost / self.signal).sqrt().numpy()
        return ratio


def _energies(session: TwinSession, side: str) -> list[tuple[Tensor, Tensor]]:
    """For each layer the squares of exact values and of errors of everything sealed, ``(H_kv, T, D)``
    float64: what the codes give back now against what was kept beside them."""
    found = []
    for index, layer in enumerate(session.layers):
        exact = session.exact_sealed(index, side)[0].double().cpu()
        read = layer.sealed.sides[side].read(0, layer.sealed.tokens, session.device, session.dtype)
        found.append((exact.square(), (exact - read[0].double().cpu()).square()))
    return found


def _cache(settings: dict[str, Any]) -> CacheConfig:
    """The chosen pair in the default cache."""
    pair = {side: QuantConfig.parse(settings[side]) for side in SIDES}
    return CacheConfig(middle=Middle.QUANTIZE, key=pair["key"], value=pair["value"])


def _check(bench: Bench, settings: dict[str, Any]) -> None:
    cache, length, skip = _cache(settings), settings["length"], settings["skip"]
    if cache.key.is_none and cache.value.is_none:
        raise ConfigError("lab_none_coded")
    check_text(bench, settings["start"], length, cache)
    least = cache.sink_size + cache.window_size + cache.block_size
    if length < least:
        raise ConfigError("lab_no_block", tokens=length, least=least)
    if skip >= length - 1:
        raise ConfigError("score_skip", skip=skip, tokens=length)


def _run(bench: Bench, settings: dict[str, Any]) -> Experimenting:
    ids = bench.text(settings["start"], settings["length"])
    facts, cache = bench.model.facts, _cache(settings)
    follower = _Follower(facts.n_layers, len(ids), settings["skip"])
    reading = scoring(
        bench.model, ids, cache, skip=settings["skip"], full_kind=OutputSession, kind=TwinSession,
        watch=follower,
    )  # fmt: skip
    done = 0
    try:
        while True:
            read = next(reading)
            yield 2 * (read - done)
            done = read
    except StopIteration as finished:
        score: ScoreResult = finished.value
    finally:
        reading.close()
    arrays = _arrays(follower, cache.block_size)
    main, layers = _score_table(score, arrays), _layer_table(arrays)
    return LabResult(
        experiment=INFO.name,
        settings=settings,
        model=facts,
        text_sha256=bench.corpus.sha256,
        finding=_finding(score, arrays, settings),
        tables={"error_score": main, "error_layers": layers, "error_heads": _head_table(arrays)},
        arrays=arrays,
        marks={"first": cache.sink_size, "block_size": cache.block_size},
    )


def _arrays(follower: _Follower, block: int) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for side in SIDES:
        pairs = follower.sealed[side]
        signal, lost = (torch.stack([pair[i] for pair in pairs]) for i in (0, 1))  # (L, H, T, D)
        arrays[f"{side}_heads"] = _relative(signal.sum((2, 3)), lost.sum((2, 3)))
        arrays[f"{side}_channels"] = _relative(signal.sum(2).flatten(1), lost.sum(2).flatten(1))
        blocks = [_by_block(x, block) for x in (signal, lost)]
        arrays[f"{side}_blocks"] = _relative(*blocks)
        arrays[f"{side}_layers"] = _relative(signal.sum((1, 2, 3)), lost.sum((1, 2, 3)))
        arrays[f"{side}_max"] = lost.amax((1, 2, 3)).sqrt().numpy()
    arrays["alone"], arrays["before"] = follower.errors
    return arrays


def _by_block(energy: Tensor, block: int) -> Tensor:
    """``(L, H, T, D)`` -> ``(L, T / block)``."""
    n_layers, n_heads, tokens, head_dim = energy.shape
    return energy.reshape(n_layers, n_heads, tokens // block, block, head_dim).sum((1, 3, 4))


def _relative(signal: Tensor, lost: Tensor) -> NDArray[np.float64]:
    """``sqrt(lost / signal)``; 0 where nothing is lost."""
    ratio = torch.where(lost > 0, lost / signal, torch.zeros_like(lost))
    root: NDArray[np.float64] = ratio.sqrt().numpy()
    return root


def _score_table(score: ScoreResult, arrays: dict[str, NDArray[Any]]) -> Table:
    row: list[Cell] = [
        score.config.key.spec, score.config.value.spec, score.memory.effective_bits,
        score.ppl_full, score.ppl, score.ppl / score.ppl_full - 1, score.kl, score.top1,
        score.memory.used_bytes,
    ]  # fmt: skip
    return table(
        [
            ("pair_key", "text"), ("pair_value", "text"), ("pair_bits", "norm"), ("pair_ppl_full", "ppl"),
            ("ppl", "ppl"), ("pair_ppl_change", "share"), ("kl", "nats"), ("top1", "share"),
            ("cache_bytes", "bytes"),
        ],
        [row],
    )  # fmt: skip


def _layer_table(arrays: dict[str, NDArray[Any]]) -> Table:
    rows: list[list[Cell]] = []
    for layer in range(len(arrays["alone"])):
        row: list[Cell] = [layer]
        for side in SIDES:
            error = float(arrays[f"{side}_layers"][layer])
            worst = int(arrays[f"{side}_channels"][layer].argmax())
            row += [error, snr_db(error), worst, float(arrays[f"{side}_channels"][layer, worst])]
            row.append(float(arrays[f"{side}_max"][layer]))
        rows.append([*row, float(arrays["alone"][layer]), float(arrays["before"][layer])])
    columns = [("layer", "count")]
    for side in SIDES:
        columns += [
            (f"{side}_error", "share"), (f"{side}_snr", "norm"), (f"{side}_worst", "count"),
            (f"{side}_worst_error", "share"), (f"{side}_max_error", "norm"),
        ]  # fmt: skip
    columns += [("output_alone", "share"), ("output_before", "share")]
    return table(columns, rows)  # type: ignore[arg-type]


def _head_table(arrays: dict[str, NDArray[Any]]) -> Table:
    rows: list[list[Cell]] = []
    for layer, head in np.ndindex(arrays["key_heads"].shape):
        errors = [float(arrays[f"{side}_heads"][layer, head]) for side in SIDES]
        rows.append([layer, head, errors[0], snr_db(errors[0]), errors[1], snr_db(errors[1])])
    return table(
        [
            ("layer", "count"), ("kv_head", "count"), ("key_error", "share"), ("key_snr", "norm"),
            ("value_error", "share"), ("value_snr", "norm"),
        ],
        rows,
    )  # fmt: skip


def _finding(score: ScoreResult, arrays: dict[str, NDArray[Any]], settings: dict[str, Any]) -> str:
    heads = {side: arrays[f"{side}_heads"] for side in SIDES}
    worst = {side: divmod(int(errors.argmax()), errors.shape[1]) for side, errors in heads.items()}
    alone = int(arrays["alone"].argmax())
    return text(
        "lab.error.finding.said",
        key_spec=settings["key"],
        value_spec=settings["value"],
        key=format_share(_whole(arrays["key_layers"])),
        value=format_share(_whole(arrays["value_layers"])),
        key_layer=worst["key"][0],
        key_head=worst["key"][1],
        key_worst=format_share(float(heads["key"].max())),
        value_layer=worst["value"][0],
        value_head=worst["value"][1],
        value_worst=format_share(float(heads["value"].max())),
        layer=alone,
        alone=format_share(float(arrays["alone"][alone])),
        last=format_share(float(arrays["before"][-1])),
        kl=format_number(score.kl),
        top1=format_share(score.top1),
        full=f"{score.ppl_full:.3f}",
        ppl=f"{score.ppl:.3f}",
    )


def _whole(layers: NDArray[np.float64]) -> float:
    """Root mean square over layers."""
    return math.sqrt(float(np.square(layers).mean()))


EXPERIMENT = Experiment(info=INFO, work=lambda settings: 2 * int(settings["length"]), run=_run, check=_check)
