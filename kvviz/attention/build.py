"""The decode kernel as machine code: compiled once by the machine's own C compiler, then kept in a folder.

Knows compilers and files, no tensors. Compiling takes about two seconds and happens in a thread of its own,
from the moment a model is made; without a compiler, or where it fails, attention works at eager speed.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kvviz.catalogue import text

logger = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("decode.c")
#: set to ``off``: nothing is compiled, everything is read eagerly
SWITCH = "KVVIZ_KERNEL"
_SECONDS = 120
_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-fopenmp-simd")
#: from the fastest on; machines differ in what their compiler takes
_VARIANTS = (
    ("-march=native", "-fopenmp"),
    ("-march=native",),
    ("-mcpu=native",),
    (),
)


@dataclass(frozen=True, slots=True)
class Built:
    """How it went. ``state``: ``compiled``, ``kept`` (compiled earlier), ``no_compiler``, ``failed`` or
    ``off``; ``library`` is None in the last three. ``seconds``: compiling and loading."""

    state: str
    library: ctypes.CDLL | None = None
    seconds: float = 0.0
    detail: str = ""

    def sentence(self) -> str:
        """For people."""
        return text(f"kernel.{self.state}", seconds=f"{self.seconds:.1f}", detail=self.detail)


class KernelBuild:
    """One compilation on its way; begins with :meth:`start`, in the background."""

    def __init__(self, folder: Path, *, compiler: str | None = None) -> None:
        """``folder`` keeps what was compiled; ``compiler``: a program instead of the machine's usual one."""
        self._folder, self._compiler = folder, compiler
        self._thread = threading.Thread(target=self._run, name="kernel-build", daemon=True)
        self._lock = threading.Lock()
        self._built = Built("failed")
        self.waited_seconds = 0.0

    def start(self) -> KernelBuild:
        """Begin; again is harmless."""
        with self._lock:
            if not self._thread.is_alive() and self._thread.ident is None:
                self._thread.start()
        return self

    @property
    def is_done(self) -> bool:
        """True when :meth:`wait` would not wait."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def wait(self) -> Built:
        """The result; waits for it if it must, and remembers for how long."""
        self.start()
        begin = time.perf_counter()
        self._thread.join()
        self.waited_seconds = max(self.waited_seconds, time.perf_counter() - begin)
        return self._built

    def _run(self) -> None:
        begin = time.perf_counter()
        try:
            built = self._make()
        except (OSError, subprocess.SubprocessError) as error:
            built = Built("failed", detail=str(error))
        seconds = time.perf_counter() - begin
        self._built = Built(built.state, built.library, seconds, built.detail)
        logger.info("decode kernel: %s in %.2f s %s", built.state, seconds, built.detail)

    def _make(self) -> Built:
        if os.environ.get(SWITCH, "").lower() == "off":
            return Built("off")
        compiler = self._compiler or os.environ.get("CC") or "cc"
        program = shutil.which(compiler) or shutil.which("gcc") or shutil.which("clang")
        if self._compiler is not None:
            program = shutil.which(self._compiler)
        kept = self._folder / f"decode-{_key(program or '')}.so"
        if _is_ours(kept):
            try:
                return Built("kept", ctypes.CDLL(str(kept)))
            except OSError as error:
                logger.info("kept kernel does not load: %s", error)
        if program is None:
            return Built("no_compiler")
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            room: Path | None = self._folder
        except OSError:
            room = None  # nowhere to keep it: compiled for this process alone
        with tempfile.TemporaryDirectory(dir=room) as scratch:
            library, errors = _compile(program, Path(scratch))
            if library is None:
                return Built("failed", detail=errors)
            loaded = ctypes.CDLL(str(library))
            if room is not None:
                os.replace(library, kept)
            return Built("compiled", loaded)


@cache  # one for all models of a process
def kernel_build(folder: Path) -> KernelBuild:
    """The compilation that keeps its result in ``folder``, begun."""
    return KernelBuild(folder).start()


def _compile(program: str, scratch: Path) -> tuple[Path | None, str]:
    """The library, or None and what the compiler said last."""
    errors = ""
    for number, variant in enumerate(_VARIANTS):
        compiled, library = scratch / f"{number}.o", scratch / f"{number}.so"
        # linked without OpenMP's flag: its functions are torch's, so that both share one pool of threads
        for command in (
            [program, *_FLAGS, *variant, "-c", str(SOURCE), "-o", str(compiled)],
            [program, "-shared", str(compiled), "-o", str(library)],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
            if done.returncode:
                errors = done.stderr.strip()[-500:]
                break
        else:
            try:
                ctypes.CDLL(str(library))
            except OSError as error:
                errors = str(error)
            else:
                return library, ""
    return None, errors


def _key(program: str) -> str:
    """What the machine code depends on: source, compiler, processor and flags."""
    about = [program, platform.machine(), platform.system(), _processor(), *map(str, (_FLAGS, _VARIANTS))]
    digest = hashlib.sha256(SOURCE.read_bytes())
    for item in about:
        digest.update(item.encode())
    return digest.hexdigest()[:16]


def _processor() -> str:
    """The processor's instruction sets: a home folder may be shared by machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def _is_ours(path: Path) -> bool:
    """True for a file of this user that nobody else may write: what is loaded is run."""
    try:
        status = path.stat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & 0o022
