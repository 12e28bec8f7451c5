"""Looking at the residual stream: what each decoder layer hands to the next.

Knows where a network keeps its decoder layers, and nothing of caches or tokens. Hooks only look: they return
nothing, so no number of the pass changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor

#: called for each layer of a pass: layer, residual stream after it ``(B, Q, E)``
HiddenTaker: TypeAlias = Callable[[int, Tensor], None]


@contextmanager
def watched(network: Any, take: HiddenTaker) -> Iterator[None]:
    """While open, every pass of ``network`` shows ``take`` the residual stream after each decoder layer.

    Every pass, whoever makes it: the caller keeps others out.
    """

    def hook_of(layer: int) -> Callable[[torch.nn.Module, Any, Any], None]:
        def hook(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            take(layer, output[0] if isinstance(output, tuple) else output)

        return hook

    handles = [
        module.register_forward_hook(hook_of(layer)) for layer, module in enumerate(network.base_model.layers)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
