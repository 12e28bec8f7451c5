"""Arrays as text for JSON and back, read strictly: known kinds, expected shapes, a bounded number of bytes.

Knows numbers only. Exact kinds keep every bit; ``rounded`` keeps numbers that are not negative to half a
unit, a unit being the largest one over its levels, and not-a-number as such.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvviz.errors import KvvizError

EXACT = {"<i4", "<f4", "<f8"}
ROUNDED = "rounded"
#: Levels of shares: half a unit is 0.0122 % of the largest one.
LEVELS = 4095
#: Levels of numbers that change little from one step to the next.
FINE_LEVELS = 65534
_NAN = 65535


@dataclass
class Allowance:
    """How many bytes a file may still unpack to."""

    n_bytes: int

    def take(self, n_bytes: int) -> None:
        """Use some of it.

        Raises:
            KvvizError: there is not that much.
        """
        self.n_bytes -= n_bytes
        if self.n_bytes < 0:
            raise KvvizError("file_wrong", reason="size")


def pack_exact(values: NDArray[Any], kind: str) -> dict[str, Any]:
    """Every number as ``kind`` (one of :data:`EXACT`)."""
    return _packed(kind, values.shape, _planes(np.ascontiguousarray(values, dtype=kind)))


def pack_rounded(values: NDArray[Any], levels: int = LEVELS) -> dict[str, Any]:
    """Numbers that are not negative as levels, each less its predecessor along the first axis."""
    exact = values.astype(np.float64)
    largest = float(np.nanmax(exact)) if exact.size and not np.isnan(exact).all() else 0.0
    unit = largest / levels if largest else 1.0
    codes = np.where(np.isnan(exact), _NAN, np.round(np.nan_to_num(exact) / unit)).astype(np.uint16)
    steps = np.diff(codes, axis=0, prepend=np.zeros_like(codes[:1])) if codes.ndim > 1 else codes
    return _packed(ROUNDED, values.shape, _planes(np.ascontiguousarray(steps, dtype="<u2"))) | {"unit": unit}


def pack_json(content: str) -> str:
    """A text as deflated base64."""
    return base64.b64encode(zlib.compress(content.encode(), 9)).decode("ascii")


def unpack_json(packed: Any, allowance: Allowance) -> str:
    """Inverse of :func:`pack_json`.

    Raises:
        KvvizError: it is none, or larger than allowed.
    """
    most = allowance.n_bytes
    content = _inflate(packed, most)
    allowance.take(len(content))
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise KvvizError("file_wrong", reason="text") from error


def unpack(plain: Any, kind: str, shape: Sequence[int], allowance: Allowance) -> NDArray[Any]:
    """An array of exactly this kind and shape; -1 in ``shape`` stands for any length.

    Raises:
        KvvizError: anything else.
    """
    if not isinstance(plain, Mapping) or plain.get("kind") != kind:
        raise KvvizError("file_wrong", reason="array")
    given = plain.get("shape")
    if not isinstance(given, list) or len(given) != len(shape):
        raise KvvizError("file_wrong", reason="shape")
    if not all(type(n) is int and 0 <= n < 1 << 31 for n in given):
        raise KvvizError("file_wrong", reason="shape")
    if any(want not in (-1, got) for want, got in zip(shape, given, strict=True)):
        raise KvvizError("file_wrong", reason="shape")
    dtype = np.dtype("<u2" if kind == ROUNDED else kind)
    count = 1
    for n in given:
        count *= n
    allowance.take(8 * count)
    content = _inflate(plain.get("data"), count * dtype.itemsize)
    if len(content) != count * dtype.itemsize:
        raise KvvizError("file_wrong", reason="length")
    planes = np.frombuffer(content, dtype=np.uint8).reshape(dtype.itemsize, count)
    values = np.ascontiguousarray(planes.T).view(dtype).reshape(given)
    return _unrounded(values, plain.get("unit")) if kind == ROUNDED else values


def _unrounded(steps: NDArray[Any], unit: Any) -> NDArray[np.float32]:
    if not isinstance(unit, float) or not 0 < unit < 1e6:
        raise KvvizError("file_wrong", reason="unit")
    codes = np.add.accumulate(steps, axis=0, dtype=np.uint16) if steps.ndim > 1 and steps.size else steps
    return np.where(codes == _NAN, np.nan, codes.astype(np.float64) * unit).astype(np.float32)


def _packed(kind: str, shape: Sequence[int], content: bytes) -> dict[str, Any]:
    return {"kind": kind, "shape": list(shape), "data": base64.b64encode(zlib.compress(content, 9)).decode()}


def _planes(values: NDArray[Any]) -> bytes:
    """All first bytes, then all second ones: what changes little lies together."""
    return values.reshape(-1).view(np.uint8).reshape(-1, values.dtype.itemsize).T.tobytes()


def _inflate(packed: Any, most: int) -> bytes:
    if not isinstance(packed, str):
        raise KvvizError("file_wrong", reason="data")
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(base64.b64decode(packed, validate=True), most + 1)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise KvvizError("file_wrong", reason="data") from error
    if not unpacker.eof or unpacker.unused_data or len(content) > most:
        raise KvvizError("file_wrong", reason="length")
    return content
