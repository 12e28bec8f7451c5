"""A GGUF becomes a network once; a converted copy makes the second start quick.

Knows the two file formats; does not know where the GGUF came from. A copy is written beside its final
name and moved there whole, so a copy that can be seen is complete; its hashes are checked at each start.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from kvviz.catalogue import phrase
from kvviz.errors import ModelError
from kvviz.models.sources import Progress, disk_errors, require_space

logger = logging.getLogger(__name__)

_MANIFEST = "kvviz.json"
_COPY_VERSION = 1
_SPARE_BYTES = 50_000_000


def load_gguf(path: Path, progress: Progress) -> tuple[Any, Any]:
    """Network (fp32) and tokenizer of a GGUF; row permutations of its family are undone by the library."""
    progress(phrase("models.converting"), None)
    network = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    return network, tokenizer


def keep_copy(network: Any, tokenizer: Any, folder: Path) -> None:
    """Write network and tokenizer to ``folder``.

    Raises:
        ModelError: no disk space, or the folder cannot be written.
    """
    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    if network.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)  # the same storage as the embedding: stored once
    needed_bytes = sum(t.numel() * t.element_size() for t in tensors.values())
    require_space(folder.parent, needed_bytes + _SPARE_BYTES)
    with disk_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            save_file(tensors, temporary / "model.safetensors", metadata={"format": "pt"})
            config = network.config.to_dict()
            config.pop("quantization_config", None)  # it names the file format that was left behind
            config["architectures"] = [type(network).__name__]
            (temporary / "config.json").write_text(json.dumps(config, default=str), encoding="utf-8")
            network.generation_config.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
            sizes = {file.name: file.stat().st_size for file in temporary.iterdir()}
            hashes = {file.name: _sha256(file) for file in temporary.iterdir()}
            manifest = {"version": _COPY_VERSION, "sizes": sizes, "sha256": hashes}
            (temporary / _MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)
            temporary.replace(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def load_copy(folder: Path) -> tuple[Any, Any] | None:
    """What :func:`keep_copy` wrote, or None when there is no whole copy of this version."""
    if not _is_whole(folder):
        return None
    try:
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        logger.warning("the converted copy in %s cannot be read and is made again: %s", folder, error)
        return None
    return network, tokenizer


def try_keep_copy(network: Any, tokenizer: Any, folder: Path, progress: Progress) -> None:
    """Keep a copy if there is room; without one the next start is slow, but this one is not lost."""
    try:
        keep_copy(network, tokenizer, folder)
    except ModelError as error:
        progress(phrase("models.copy_failed", reason=error), None)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_whole(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        whole = manifest["version"] == _COPY_VERSION and all(
            (folder / name).stat().st_size == size for name, size in manifest["sizes"].items()
        )
        return whole and all(_sha256(folder / name) == kept for name, kept in manifest["sha256"].items())
    except (OSError, ValueError, KeyError):
        return False
