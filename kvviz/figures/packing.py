"""Arrays as short strings for a script: an 8-bit grey PNG, and 16-bit numbers under zlib.

Knows numbers only; does not know what they measure. Both are read by what every browser has built in.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PNG = b"\x89PNG\r\n\x1a\n"
_GREY_8_BIT = bytes([8, 0, 0, 0, 0])


def png_gray(pixels: NDArray[np.uint8]) -> bytes:
    """``(height, width)`` grey levels as a PNG file, lossless."""
    height, width = pixels.shape
    lines = np.zeros((height, width + 1), dtype=np.uint8)  # each line begins with filter 0: as it stands
    lines[:, 1:] = pixels
    header = struct.pack(">II", width, height) + _GREY_8_BIT
    body = zlib.compress(lines.tobytes(), 9)
    return _PNG + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def base64_text(content: bytes) -> str:
    """Bytes as text for JSON."""
    return base64.b64encode(content).decode("ascii")


def pack_text(lines: Sequence[str]) -> str:
    """Lines (none with a line end in it) as one deflated UTF-8 text."""
    return base64_text(zlib.compress("\n".join(lines).encode(), 6))


def pack_runs(codes: NDArray[Any]) -> list[int]:
    """``code, count, code, count ...`` of a sequence that seldom changes."""
    edges = np.flatnonzero(np.diff(codes)) + 1
    starts = np.concatenate([[0], edges, [len(codes)]]) if len(codes) else np.zeros(1, np.int64)
    return [int(n) for i, j in pairwise(starts) for n in (codes[i], j - i)]


def pack_numbers(numbers: NDArray[Any]) -> str:
    """Whole numbers in ``[0, 65535]``, flattened: all low bytes, then all high bytes (mostly 0), deflated."""
    flat = np.ascontiguousarray(numbers, dtype="<u2").ravel()
    low, high = (flat & 255).astype(np.uint8), (flat >> 8).astype(np.uint8)
    return base64_text(zlib.compress(low.tobytes() + high.tobytes(), 6))


def unpack_numbers(packed: str) -> NDArray[np.uint16]:
    """What :func:`pack_numbers` was given, flat."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype=np.uint8)
    low, high = planes.reshape(2, -1)
    return low.astype(np.uint16) + np.uint16(256) * high.astype(np.uint16)
