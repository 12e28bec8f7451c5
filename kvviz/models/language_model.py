"""A causal language model as the engine sees it: text to ids, ids through a session to logits.

Shares its weights between runs and holds no run state. Knows nothing of configurations being compared, of
events or of pages.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from kvviz.attention import Built, Kernel, KernelBuild, is_fast, kernel_build
from kvviz.cache import CacheSession
from kvviz.config import CacheConfig
from kvviz.errors import ConfigError
from kvviz.events import ModelFacts, TokenLabel
from kvviz.models import adapter, safety
from kvviz.models.fits import in_cache_refusal
from kvviz.models.hidden import HiddenTaker, watched
from kvviz.models.library import LibraryCache, LibraryReading
from kvviz.models.sources import cache_folder
from kvviz.models.tokens import TokenText
from kvviz.quant import Calibration


class LanguageModel:
    """A network prepared to read through cache sessions, and its tokenizer."""

    def __init__(self, network: Any, tokenizer: Any, facts: ModelFacts) -> None:
        adapter.prepare(network)
        self.network, self.tokenizer, self.facts = network, tokenizer, facts
        self._turn = threading.Lock()
        self.kernel_build = self._begin_kernel()
        self.token_text = TokenText(tokenizer)
        self.in_cache_refusal = in_cache_refusal(network)
        self.eos_ids = _eos_ids(network, tokenizer)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return torch.device(self.facts.device)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of weights, keys and values."""
        dtype: torch.dtype = getattr(torch, self.facts.dtype)
        return dtype

    def _begin_kernel(self) -> KernelBuild | None:
        """Compiling goes on while the model is looked at; None where no kernel would be used."""
        return kernel_build(cache_folder() / "kernels") if is_fast(self.dtype, self.device) else None

    @cached_property
    def _kernel(self) -> tuple[Built, Kernel | None]:
        built = Built("off") if self.kernel_build is None else self.kernel_build.wait()
        return built, None if built.library is None else Kernel(built.library)

    @property
    def kernel(self) -> Kernel | None:
        """What reads single rows, for new sessions; the first to ask waits until it is compiled."""
        return self._kernel[1]

    def encode(self, prompt: str, use_chat_template: bool) -> list[int]:
        """Text to ids, with exactly one beginning-of-sequence token where the tokenizer asks for one.

        Raises:
            ConfigError: nothing to read, or no chat template although one was asked for.
        """
        if use_chat_template and not prompt.strip():
            raise ConfigError("prompt_empty")
        ids = self._encode_chat(prompt) if use_chat_template else self._encode_raw(prompt)
        if not ids:
            raise ConfigError("prompt_empty")
        return ids

    def _encode_raw(self, prompt: str) -> list[int]:
        return self._one_bos(self.tokenizer(prompt)["input_ids"]) if prompt else []

    def _encode_chat(self, prompt: str) -> list[int]:
        if not self.tokenizer.chat_template:
            raise ConfigError("no_chat_template", model=self.facts.name)
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        bos = self.tokenizer.bos_token_id
        asks_for_bos = self.tokenizer("a")["input_ids"][:1] == [bos]
        return self._one_bos([bos, *ids] if asks_for_bos else ids)

    def _one_bos(self, ids: list[int]) -> list[int]:
        bos = self.tokenizer.bos_token_id
        return ids[1:] if bos is not None and ids[:2] == [bos, bos] else list(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Ids to text, special tokens left out."""
        return str(
            self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )

    def labels(self, ids: Sequence[int], *, at_start: bool = True) -> list[TokenLabel]:
        """How each token is shown."""
        return self.token_text.labels(ids, at_start=at_start)

    def check(self, cache: CacheConfig, *, calibrated: bool = False) -> None:
        """Refuse settings that do not fit this model, before anything runs; ``calibrated`` when a calibration
        will be handed in.

        Raises:
            ConfigError: says which setting, and what would fit.
        """
        facts = self.facts
        cache.check_model(
            n_layers=facts.n_layers,
            head_dim=facts.head_dim,
            in_cache_refusal=self.in_cache_refusal,
            calibrated=calibrated,
        )

    def warnings(self, cache: CacheConfig) -> list[str]:
        """What the weights say against settings that do fit, in sentences; empty for most."""
        return safety.warnings(self._key_shifts, cache)

    @cached_property
    def _key_shifts(self) -> list[safety.KeyShift]:
        return safety.key_shifts(self.network, self.facts)

    def new_session(
        self,
        cache: CacheConfig,
        kind: type[CacheSession] = CacheSession,
        *,
        calibration: Calibration | None = None,
    ) -> CacheSession:
        """An empty cache for one run; ``kind`` is a session that reads in a way of its own, ``calibration``
        what ``nuq`` and ``+static`` need.

        Raises:
            ConfigError: the settings do not fit this model.
        """
        self.check(cache, calibrated=calibration is not None)
        facts = self.facts
        return kind(
            cache,
            n_layers=facts.n_layers,
            n_heads=facts.n_heads,
            n_kv_heads=facts.n_kv_heads,
            head_dim=facts.head_dim,
            dtype=self.dtype,
            device=self.device,
            rotary=adapter.rotary(self.network),
            calibration=calibration,
            kernel=self.kernel,
        )

    def library_reading(self, name: LibraryCache) -> LibraryReading:
        """The same weights read through a cache of the library, to compare with."""
        return LibraryReading(self.network, self._turn, name)

    def forward(
        self,
        ids: Sequence[int],
        session: CacheSession,
        *,
        last_only: bool,
        rows: Sequence[int] | None = None,
        hidden: HiddenTaker | None = None,
    ) -> Tensor:
        """Feed ``ids``; logits ``(Q, V)``, or ``(1, V)`` of the last row, in fp32 (fp64 stays).

        ``rows``, counted from the first of ``ids``, asks for the logits of these alone: ``(len(rows), V)``.
        ``hidden`` is shown the residual stream ``(1, Q, E)`` after each layer; looking changes no number.
        """
        if rows is None and last_only:
            rows = [len(ids) - 1]
        wanted = None if rows is None else torch.tensor(list(rows), device=self.device, dtype=torch.int64)
        looking = nullcontext() if hidden is None else watched(self.network, hidden)
        # one pass at a time: two at once on the same cores are slower than one after the other
        with self._turn, looking, torch.inference_mode():
            logits = adapter.forward(self.network, self._fed(ids), session, wanted)[0]
        return logits if logits.dtype is torch.float64 else logits.float()

    def read(self, ids: Sequence[int], session: CacheSession, *, last_layer: int) -> None:
        """Feed ``ids`` through the first layers only, ``last_layer`` included; such a session is for looking
        at these layers, not for logits."""
        with self._turn, torch.inference_mode():
            adapter.read(self.network, self._fed(ids), session, last_layer=last_layer)

    def _fed(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([list(ids)], device=self.device)


def _eos_ids(network: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a text, by the generation settings and by the tokenizer."""
    found: set[int] = set()
    for eos in (network.generation_config.eos_token_id, tokenizer.eos_token_id):
        if eos is not None:
            found.update(eos if isinstance(eos, (list, tuple)) else [eos])
    return frozenset(found)
