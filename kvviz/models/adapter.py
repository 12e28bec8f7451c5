"""Where a transformers network meets the cache: one attention function, one layer class, one forward.

The session travels as a keyword argument of the forward call, so concurrent runs share one network without
any global. This module knows the library's calling convention and nothing of tokens or text.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from kvviz.cache import CacheSession

ATTENTION_NAME = "kvviz"
_SESSION_KEYWORD = "kvviz_session"
_LAST_LAYER_KEYWORD = "kvviz_last_layer"


class _EnoughError(Exception):
    """The last layer that was asked for has read: the way out of a forward call, caught here."""


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The library's attention call: ``query (B, H, Q, D)`` in, ``(B, Q, H, D)`` out; no weights."""
    session: CacheSession = kwargs[_SESSION_KEYWORD]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: int = module.layer_idx  # type: ignore[assignment]
    output = session.attend(layer, query, scale)
    if layer == kwargs.get(_LAST_LAYER_KEYWORD):
        raise _EnoughError
    return output.transpose(1, 2).contiguous(), None


class _SessionLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer of a session as the library sees it; it stores nothing itself."""

    is_compileable = False

    def __init__(self, session: CacheSession, layer: int) -> None:
        super().__init__()
        self._session = session
        self._layer = layer
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to allocate."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the chunk; only the chunk returns, because attention reads the parts from the session."""
        self._session.append(self._layer, key_states, value_states)
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """No mask is built; lengths as if every token were kept."""
        return self._session.seen_tokens + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens seen, evicted ones included."""
        return self._session.seen_tokens

    def get_max_length(self) -> int:
        """No fixed length."""
        return -1

    def get_max_cache_shape(self) -> int:
        """The older name of :meth:`get_max_length`."""
        return -1


def prepare(network: PreTrainedModel) -> None:
    """Make ``network`` read through sessions. Registering again is harmless."""
    AttentionInterface.register(ATTENTION_NAME, _attention)
    AttentionMaskInterface.register(ATTENTION_NAME, lambda *args, **kwargs: None)
    network.set_attn_implementation(ATTENTION_NAME)


def rotary(network: PreTrainedModel) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The network's own rotary angles: positions ``(N,)`` -> cosines and sines ``(N, R)``."""
    module = network.base_model.rotary_emb

    def angles(positions: Tensor) -> tuple[Tensor, Tensor]:
        probe = torch.empty(1, dtype=torch.float64, device=positions.device)
        cos, sin = module(probe, positions.unsqueeze(0))
        return cos[0], sin[0]

    return angles


def cache_keyword(network: PreTrainedModel) -> str:
    """The library renamed its cache argument; both names are in the range we support."""
    return "cache" if "cache" in inspect.signature(network.forward).parameters else "past_key_values"


def forward(network: PreTrainedModel, ids: Tensor, session: CacheSession, rows: Tensor | None) -> Tensor:
    """Feed ``ids (1, Q)`` through the session: logits ``(1, R, V)`` of ``rows (R,)``, of all without."""
    output = _call(network, ids, session, logits_to_keep=0 if rows is None else rows)
    session.finish()
    logits: Tensor = output.logits
    return logits


def read(network: PreTrainedModel, ids: Tensor, session: CacheSession, *, last_layer: int) -> None:
    """Feed ``ids (1, Q)`` through layers ``[0, last_layer]``; deeper ones never hear of them."""
    with contextlib.suppress(_EnoughError):
        _call(network, ids, session, logits_to_keep=1, **{_LAST_LAYER_KEYWORD: last_layer})
    session.finish()


def _call(network: PreTrainedModel, ids: Tensor, session: CacheSession, **more: Any) -> Any:
    step = session.begin(ids.shape[1])
    positions = torch.arange(step.first, step.stop, device=ids.device).unsqueeze(0)
    layers = [_SessionLayer(session, layer) for layer in range(session.n_layers)]
    return network(
        input_ids=ids,
        position_ids=positions,
        use_cache=True,
        **{cache_keyword(network): Cache(layers=layers), _SESSION_KEYWORD: session},
        **more,
    )
