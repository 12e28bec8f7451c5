"""The library's own caches on the same weights: what kvviz's times and bytes are compared with.

Knows the library's cache classes and which optional packages they need; measures nothing itself.
"""

from __future__ import annotations

import importlib.util
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, QuantizedCache

from kvviz.models.adapter import ATTENTION_NAME, cache_keyword

LibraryCache = Literal["dynamic", "quanto", "hqq"]
#: the library's quantized caches -> the package each needs
PACKAGES = {"quanto": "optimum.quanto", "hqq": "hqq"}
_BITS, _GROUP, _RESIDUAL = 4, 64, 128
_AXIS = {"quanto": 0, "hqq": 1}  # the axes that each backend takes by default


def is_installed(name: LibraryCache) -> bool:
    """False where an optional package is missing."""
    package = PACKAGES.get(name)
    if package is None:
        return True
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


class LibraryReading:
    """One text read through a cache of the library, with its scaled-dot-product attention.

    ``dynamic`` is the library's default; ``quanto`` and ``hqq`` are its quantized cache: 4 bits, groups of
    64, the newest 128 tokens exact.
    """

    def __init__(self, network: PreTrainedModel, turn: threading.Lock, name: LibraryCache) -> None:
        self._network, self._turn = network, turn
        self._cache = _new_cache(network, name)

    def feed(self, ids: Sequence[int]) -> Tensor:
        """Read ``ids``; logits ``(V,)`` of the last one."""
        fed = torch.tensor([list(ids)], device=self._network.device)
        keyword = {cache_keyword(self._network): self._cache}
        with self._turn, _library_attention(self._network), torch.inference_mode():
            output = self._network(input_ids=fed, use_cache=True, logits_to_keep=1, **keyword)
        logits: Tensor = output.logits[0, -1]
        return logits

    def held_bytes(self) -> int:
        """Bytes of every tensor that the cache holds, packed codes and their metadata included."""
        storages: dict[int, int] = {}
        for layer in self._cache.layers:
            for value in vars(layer).values():
                for tensor in _tensors(value):
                    storage = tensor.untyped_storage()
                    storages[storage.data_ptr()] = storage.nbytes()
        return sum(storages.values())

    def close(self) -> None:
        """Give the memory back."""
        self._cache = None


def _new_cache(network: PreTrainedModel, name: LibraryCache) -> Any:
    if name == "dynamic":
        return DynamicCache(config=network.config)
    axis = _AXIS[name]
    return QuantizedCache(
        backend=name,
        config=network.config,
        nbits=_BITS,
        axis_key=axis,
        axis_value=axis,
        q_group_size=_GROUP,
        residual_length=_RESIDUAL,
    )


@contextmanager
def _library_attention(network: PreTrainedModel) -> Iterator[None]:
    network.set_attn_implementation("sdpa")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        network.set_attn_implementation(ATTENTION_NAME)


def _tensors(value: Any) -> Iterator[Tensor]:
    """Plain tensors in ``value``: those inside of tensor subclasses, tuples and dicts too."""
    if isinstance(value, Tensor):
        flatten = getattr(value, "__tensor_flatten__", None)
        if flatten is None or type(value) is Tensor:
            yield value
        else:
            for name in flatten()[0]:
                yield from _tensors(getattr(value, name))
    elif isinstance(value, dict):
        for child in value.values():
            yield from _tensors(child)
    elif isinstance(value, (list, tuple)):
        for child in value:
            yield from _tensors(child)
