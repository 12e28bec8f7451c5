"""A whole network without any cache, reading the full sequence through plain masked attention.

Row by row it applies the rules of the README's "What the cache means" to the full matrix of scores. Shares no
code with the attention and cache rooms; keys and values are quantized by the numpy oracle beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from tests.oracles.quant_oracle import Coded, quantize

NAME = "kvviz_test_oracle"
_ROWS_AT_ONCE = 128


@dataclass(frozen=True)
class Rule:
    """A cache configuration in the oracle's own words. Rows below ``exact_prompt`` see exact keys."""

    sinks: int = 0
    window: int = 1
    middle: str = "keep"
    block: int = 1
    key: str = "none"
    value: str = "none"
    in_cache: bool = False
    exact_prompt: int = 0
    overrides: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    def row(self, i: int) -> tuple[list[int], list[int]]:
        """Positions that row ``i`` sees, and those among them that it sees through their codes."""
        visible, coded = [], []
        blocks = max(0, i - self.window + 1 - self.sinks) // self.block
        for j in range(i + 1):
            is_middle = j >= self.sinks and j <= i - self.window
            if is_middle and self.middle == "evict":
                continue
            visible.append(j)
            is_sealed = j >= self.sinks and (j - self.sinks) // self.block < blocks
            if self.middle == "quantize" and is_sealed and i >= self.exact_prompt:
                coded.append(j)
        return visible, coded

    def specs(self, layer: int) -> tuple[str, str]:
        return self.overrides.get(layer, (self.key, self.value))


class OracleRun:
    """One full-sequence forward; what it saw stays for the tests to look at."""

    def __init__(self, rule: Rule, tokens: int, rotary: Any, *, keep_weights: bool = False) -> None:
        self.rule, self.tokens, self.keep_weights = rule, tokens, keep_weights
        self.visible = torch.zeros(tokens, tokens, dtype=torch.bool)
        self.coded = torch.zeros(tokens, tokens, dtype=torch.bool)
        for i in range(tokens):
            visible, coded = rule.row(i)
            self.visible[i, visible] = True
            self.coded[i, coded] = True
        self.rotary = rotary
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.key_codes: list[Coded] = []
        self.value_codes: list[Coded] = []
        self.weights: list[Tensor] = []  # (H, T, T) of each layer, when kept
        self.logits: list[Tensor] = []  # the same, before the softmax

    @property
    def sealed(self) -> int:
        """Sealed tokens after the last row."""
        whole = max(0, self.tokens - self.rule.window - self.rule.sinks) // self.rule.block
        return whole * self.rule.block if self.rule.middle == "quantize" else 0

    def read(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """``(1, H, T, D)`` in and out."""
        q, k, v = query[0], key[0], value[0]
        self.keys.append(k)
        self.values.append(v)
        k_seen, v_seen = k.clone(), v.clone()  # as rows see them that read codes
        for spec, exact, seen, coded in zip(
            self.rule.specs(layer), (k, v), (k_seen, v_seen), (self.key_codes, self.value_codes), strict=True
        ):
            part = slice(self.rule.sinks, self.rule.sinks + self.sealed)
            own, turned = exact[:, part], "+prerotary" in spec
            if turned:
                cos, sin = (x[0, part] for x in self.rotary(q.new_empty(1), torch.arange(self.tokens)[None]))
                own = _unrotate(own, cos, sin)
            result = quantize(own.numpy(), spec.replace("+prerotary", ""), self.rule.block)
            restored = torch.from_numpy(np.ascontiguousarray(result.restored)).to(exact.dtype)
            if turned:
                restored = _rotate(restored, cos, sin)
                result = result._replace(restored=restored.numpy())
            coded.append(result)
            seen[:, part] = restored
        group = q.shape[0] // k.shape[0]
        k, v, k_seen, v_seen = (x.repeat_interleave(group, dim=0) for x in (k, v, k_seen, v_seen))
        outputs, weights, logits = [], [], []
        for first in range(0, self.tokens, _ROWS_AT_ONCE):
            rows = slice(first, min(first + _ROWS_AT_ONCE, self.tokens))
            visible, coded_here = self.visible[rows], self.coded[rows]
            scores = q[:, rows] @ k.mT
            if bool(coded_here.any()):
                scores = torch.where(coded_here, q[:, rows] @ k_seen.mT, scores)
            if self.rule.in_cache:
                scores = self._in_cache_scores(scores, q, k, k_seen, rows)
            masked = (scores * scale).masked_fill(~visible, -torch.inf)
            share = torch.softmax(masked, dim=-1)
            outputs.append((share * ~coded_here) @ v + (share * coded_here) @ v_seen)
            if self.keep_weights:
                weights.append(share)
                logits.append(masked)
        if self.keep_weights:
            self.weights.append(torch.cat(weights, dim=1))
            self.logits.append(torch.cat(logits, dim=1))
        return torch.cat(outputs, dim=1)[None]

    def _in_cache_scores(self, scores: Tensor, q: Tensor, k: Tensor, k_seen: Tensor, rows: slice) -> Tensor:
        """Undo every rotation, number what the row keeps from 0, rotate again, and score."""
        cos, sin = (x[0] for x in self.rotary(q.new_empty(1), torch.arange(self.tokens)[None]))
        plain_q, plain_k, plain_seen = (_unrotate(x, cos, sin) for x in (q, k, k_seen))
        scores = scores.clone()
        for i in range(rows.start, rows.stop):
            held = torch.nonzero(self.visible[i])[:, 0]
            places = torch.arange(len(held))
            coded = self.coded[i, held, None]
            plain = torch.where(coded, plain_seen[:, held], plain_k[:, held])
            keys = _rotate(plain, cos[places], sin[places])
            asking = _rotate(plain_q[:, i : i + 1], cos[places[-1:]], sin[places[-1:]])
            scores[:, i - rows.start, held] = (asking @ keys.mT)[:, 0]
        return scores


def _halves(x: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    return x[..., : width // 2], x[..., width // 2 : width], x[..., width:]


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b, rest = _halves(x, cos.shape[-1])
    c, s = cos[:, : cos.shape[-1] // 2], sin[:, : sin.shape[-1] // 2]
    return torch.cat((a * c - b * s, b * c + a * s, rest), dim=-1)


def _unrotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    norm = cos.square() + sin.square()
    return _rotate(x, cos / norm, -sin / norm)


def _attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    run: OracleRun = kwargs["kvviz_test_run"]
    scale = kwargs.get("scaling") or query.shape[-1] ** -0.5
    return run.read(module.layer_idx, query, key, value, scale).transpose(1, 2).contiguous(), None


@contextmanager
def _reading_whole(network: Any):
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, lambda *args, **kwargs: None)
    before = network.config._attn_implementation
    network.set_attn_implementation(NAME)
    try:
        yield
    finally:
        network.set_attn_implementation(before)


def read_whole(
    network: Any, ids: list[int], rule: Rule, *, keep_weights: bool = False
) -> tuple[Tensor, OracleRun]:
    """Logits ``(T, V)`` of the whole sequence under ``rule``, and the run that made them."""
    run = OracleRun(rule, len(ids), network.base_model.rotary_emb, keep_weights=keep_weights)
    with _reading_whole(network), torch.inference_mode():
        output = network(input_ids=torch.tensor([ids]), use_cache=False, kvviz_test_run=run)
    return output.logits[0], run
