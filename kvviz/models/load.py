"""A name becomes a language model: the default one, a random tiny one, or any that fits.

Knows names and refusals; knows no run. Code that comes with a model is never executed.
"""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as library_logging

from kvviz.catalogue import phrase, text
from kvviz.errors import ModelError
from kvviz.models import sources
from kvviz.models.convert import load_copy, load_gguf, try_keep_copy
from kvviz.models.facts import read_facts
from kvviz.models.fits import check_config, check_network
from kvviz.models.language_model import LanguageModel
from kvviz.models.sources import Progress
from kvviz.models.tiny import tiny_model

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
HUB_VARIANT = "HuggingFaceTB/SmolLM2-135M-Instruct"
_TINY = "tiny-random-"
_REACH_SECONDS = 8
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model offered by name."""

    name: str
    key: str

    @property
    def label(self) -> str:
        """How it is called."""
        return text(f"models.known.{self.key}")


def known_models() -> list[KnownModel]:
    """The models offered without typing; the default first."""
    return [
        KnownModel(DEFAULT_MODEL, "default"),
        KnownModel(HUB_VARIANT, "hub"),
        KnownModel(f"{_TINY}llama", "tiny"),
    ]


def offered_models(names: Sequence[str] | None = None) -> list[KnownModel]:
    """The models of a list that an operator gave, in its order; None: all known ones."""
    known = {model.name: model for model in known_models()}
    return [known.get(name) or KnownModel(name, name) for name in (known if names is None else names)]


def load(
    name: str = DEFAULT_MODEL,
    *,
    progress: Progress | None = None,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> LanguageModel:
    """Load by name: the default, ``tiny-random-<family>``, a local folder, or a Hub id with or without
    ``@revision``.

    CPU models are fp32; CUDA ones bf16 where the card has it, else fp16.

    Raises:
        ModelError: not found, not fetched, or of a family that does not fit, with the reason.
    """
    progress = progress or sources.silent
    name = name.strip()
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = dtype or _dtype_of(device)
    library_logging.disable_progress_bar()
    if name == DEFAULT_MODEL:
        return _load_default(progress, device, dtype)
    if name.startswith(_TINY):
        family = name.removeprefix(_TINY)
        return tiny_model(family, dtype=torch.float32, n_layers=4, head_dim=64, context=8192)
    return _load_named(name, progress, device, dtype)


def _dtype_of(device: torch.device) -> torch.dtype:
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def _load_default(progress: Progress, device: torch.device, dtype: torch.dtype) -> LanguageModel:
    folder = sources.cache_folder()
    copy = folder / f"{DEFAULT_MODEL}-{sources.GGUF_SHA256[:16]}"
    progress(phrase("models.loading", model=DEFAULT_MODEL), None)
    loaded, source = load_copy(copy), "converted copy"
    if loaded is None:
        try:
            gguf = sources.find_gguf(folder, progress)
        except sources.WheelUnavailable as error:
            return _load_fallback(error, progress, device, dtype)
        loaded, source = load_gguf(gguf, progress), "GGUF"
        try_keep_copy(*loaded, copy, progress)
    network, tokenizer = loaded
    return _finish(
        network, tokenizer, DEFAULT_MODEL, source, device, dtype, weights_hash=sources.GGUF_SHA256[:16]
    )


def _load_fallback(
    cause: Exception, progress: Progress, device: torch.device, dtype: torch.dtype
) -> LanguageModel:
    """Other, unrounded weights under their own name, announced as such."""
    progress(phrase("models.fallback", model=HUB_VARIANT), None)
    try:
        return _load_named(HUB_VARIANT, progress, device, dtype)
    except ModelError as error:
        raise ModelError("default_unavailable", model=DEFAULT_MODEL) from (error or cause)


def _load_named(name: str, progress: Progress, device: torch.device, dtype: torch.dtype) -> LanguageModel:
    if not name:
        raise ModelError("model_name_empty")
    repository, revision = split_revision(name)
    progress(phrase("models.loading", model=name), None)
    _require_reachable(name, repository, revision)
    where: dict[str, Any] = {"trust_remote_code": False, "revision": revision}
    try:
        config = AutoConfig.from_pretrained(repository, **where)
        check_config(name, config)
        commit = "" if Path(name).is_dir() else _commit_of(repository, revision)
        where["revision"] = commit or revision  # a branch that moves meanwhile gives no mixture
        tokenizer = AutoTokenizer.from_pretrained(repository, **where)
        network = AutoModelForCausalLM.from_pretrained(repository, dtype=dtype, **where)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise ModelError("disk_full", folder=sources.cache_folder()) from error
        code = "model_folder" if Path(name).is_dir() else "model_not_found"
        raise ModelError(code, model=name) from error
    except (ValueError, KeyError, RuntimeError, ImportError) as error:
        raise ModelError("model_unreadable", model=name, reason=_first_line(error)) from error
    source = "folder" if Path(name).is_dir() else "Hub"
    return _finish(network, tokenizer, name, source, device, dtype, commit=commit)


def split_revision(name: str) -> tuple[str, str]:
    """``org/name@revision`` -> where it is and what of it: a commit of 40 hex digits, which pins the files,
    or a branch or tag, which may move; ``main`` without one. A folder's path is taken as it is.

    Raises:
        ModelError: the revision is no name that a commit, branch or tag can have.
    """
    repository, at, revision = name.rpartition("@")
    if not at or Path(name).is_dir():
        return name, "main"
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise ModelError("model_revision", model=repository, given=revision)
    return repository, revision


def _commit_of(repository: str, revision: str) -> str:
    """The commit whose files the library has just kept for ``revision``; empty for a folder."""
    kept = try_to_load_from_cache(repository, "config.json", revision=revision)
    return Path(kept).parent.name if isinstance(kept, str) else ""


def _require_reachable(name: str, repository: str, revision: str) -> None:
    """Say at once that a model is not there: the library itself would retry for half a minute.

    Raises:
        ModelError: no folder, not kept from an earlier download, and not found or no network.
    """
    if Path(name).is_dir():
        return
    try:
        AutoConfig.from_pretrained(
            repository, trust_remote_code=False, local_files_only=True, revision=revision
        )
        return  # kept from an earlier download: works without a network
    except (OSError, ValueError):
        pass
    try:
        HfApi().model_info(repository, revision=revision, timeout=_REACH_SECONDS)
    except (HfHubHTTPError, HFValidationError) as error:
        raise ModelError("model_not_found", model=name) from error
    except Exception as error:
        raise ModelError("no_network", model=name) from error


def _finish(
    network: Any,
    tokenizer: Any,
    name: str,
    source: str,
    device: torch.device,
    dtype: torch.dtype,
    *,
    weights_hash: str | None = None,
    commit: str = "",
) -> LanguageModel:
    check_network(name, network)
    network = network.to(device=device, dtype=dtype).eval().requires_grad_(False)
    facts = read_facts(network, name=name, source=source, weights_hash=weights_hash, commit=commit)
    return LanguageModel(network, tokenizer, facts)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


class ModelStore:
    """Loads each model once and shares it; a failure is not remembered, so that trying again can work."""

    def __init__(self, *, on_cpu: bool = False) -> None:
        """``on_cpu``: whatever devices there are, load on the CPU and ask for no other."""
        self._device = torch.device("cpu") if on_cpu else None
        self._models: dict[str, LanguageModel] = {}
        self._lock = threading.Lock()

    def get(self, name: str, *, progress: Progress | None = None) -> LanguageModel:
        """The model, loaded on first use; a second caller waits for the first.

        Raises:
            ModelError: see :func:`load`.
        """
        with self._lock:
            if name not in self._models:
                self._models[name] = load(name, progress=progress, device=self._device)
            return self._models[name]

    def loaded(self, name: str) -> LanguageModel | None:
        """The model if it is there already; never loads or waits for a load."""
        return self._models.get(name)
