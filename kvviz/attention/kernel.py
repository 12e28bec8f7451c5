"""The compiled functions (``decode.c``) as functions of tensors: what one row reads, and codes as values.

Knows codes as numbers, ``minimum + scale * (code - offset)``, and no quantizer. fp32 on the CPU only; for all
else :meth:`Kernel.fits` and :meth:`Kernel.restores` say no, and the eager ways are there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kvviz.attention.stored import Codes, Stored

_CHUNK, _MOST_CHANNELS, _MOST_GROUP, _LANES, _EXACT_BITS = 256, 256, 32, 8, 32


class Asked(NamedTuple):
    """Stored tokens and the query ``(1, H, 1, D)`` that meets them."""

    query: Tensor
    stored: Stored


class Decoded(NamedTuple):
    """``output (1, H, 1, D)``, ``lse (1, H, 1)``, and for each part asked its start and its
    ``scores (1, H, 1, T)`` (none unless asked for)."""

    output: Tensor
    lse: Tensor
    scores: list[tuple[int, Tensor]]


class Kernel:
    """The compiled function; holds no state, so sessions and threads may share it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._decode = library.kvviz_decode
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        self._decode.argtypes = [
            pointer, word, word, word, word, ctypes.c_float, word, pointer, pointer, pointer, pointer,
            pointer,
        ]  # fmt: skip
        self._decode.restype = None
        self._restore = library.kvviz_restore
        self._restore.argtypes = [pointer, word, word, word, word, pointer]
        self._restore.restype = None

    def __deepcopy__(self, memo: dict[int, object]) -> Kernel:
        """A session's copy reads with the same machine code."""
        return self

    def fits(self, query: Tensor, stored: Sequence[Stored]) -> bool:
        """True when ``query (1, H, 1, D)`` and everything stored is of a kind that the kernel reads."""
        batch, heads, rows, channels = query.shape
        if batch != 1 or rows != 1 or channels % _LANES or channels > _MOST_CHANNELS or not stored:
            return False
        if query.dtype is not torch.float32 or query.device.type != "cpu":
            return False
        first = stored[0].key
        kv_heads = (first.data if isinstance(first, Codes) else first).shape[1]
        if heads // kv_heads > _MOST_GROUP:
            return False
        return all(_side_fits(side, channels) for part in stored for side in (part.key, part.value))

    def restores(self, codes: Codes, channels: int, dtype: torch.dtype) -> bool:
        """True when :meth:`restore` can make values of ``dtype`` from ``codes`` of so many channels."""
        fits = dtype is torch.float32 and channels % _LANES == 0 and channels <= _MOST_CHANNELS
        return fits and _side_fits(codes, channels)

    def restore(self, codes: Codes, channels: int) -> Tensor:
        """Values ``(1, H_kv, T, D)`` of codes; ask :meth:`restores` first."""
        kv_heads, tokens = codes.data.shape[1:3]
        words = _side_words(codes)
        values = torch.empty(1, kv_heads, tokens, channels)
        self._restore(
            (ctypes.c_int64 * len(words))(*words), kv_heads, tokens, channels,
            torch.get_num_threads(), values.data_ptr(),
        )  # fmt: skip
        return values

    def decode(self, asked: Sequence[Asked], scale: float, *, keep_scores: bool) -> Decoded:
        """What one row reads of all parts together, exactly merged. Call :meth:`fits` first."""
        _, heads, _, channels = asked[0].query.shape
        first = asked[0].stored.key
        kv_heads = (first.data if isinstance(first, Codes) else first).shape[1]
        queries = [ask.query.contiguous() for ask in asked]
        words: list[int] = []
        lengths = [ask.stored.tokens for ask in asked]
        for query, ask, tokens in zip(queries, asked, lengths, strict=True):
            words += (query.data_ptr(), tokens)
            words += _side_words(ask.stored.key)
            words += _side_words(ask.stored.value)
        chunks = sum(-(-tokens // _CHUNK) for tokens in lengths)
        room = torch.empty(chunks * heads * (channels + 2))
        scores = torch.empty(heads, sum(lengths)) if keep_scores else None
        output = torch.empty(1, heads, 1, channels)
        peaks, totals = torch.empty(2, heads)
        self._decode(
            (ctypes.c_int64 * len(words))(*words), len(asked), kv_heads, heads // kv_heads, channels, scale,
            torch.get_num_threads(), room.data_ptr(), 0 if scores is None else scores.data_ptr(),
            output.data_ptr(), peaks.data_ptr(), totals.data_ptr(),
        )  # fmt: skip
        found: list[tuple[int, Tensor]] = []
        if scores is not None:
            pieces = torch.split(scores, lengths, dim=1)
            found = [(a.stored.start, x[None, :, None]) for a, x in zip(asked, pieces, strict=True)]
        return Decoded(output, (peaks + totals.log())[None, :, None], found)


def _side_fits(side: Tensor | Codes, channels: int) -> bool:
    if isinstance(side, Tensor):
        return _rows_are_dense(side) and side.dtype is torch.float32 and side.device.type == "cpu"
    if side.data.device.type != "cpu" or side.scale.dtype not in (torch.float16, torch.float32):
        return False
    if side.bits not in (2, 3, 4, 8) or (side.group_channels > 1 and side.group_channels % _LANES):
        return False
    metadata = [side.scale] if side.minimum is None else [side.scale, side.minimum]
    # one stride serves both: buffers of one side grow together, so theirs are equal
    same = len({part.stride(1) for part in metadata}) == 1
    return same and all(_rows_are_dense(part) for part in (side.data, *metadata))


def _rows_are_dense(x: Tensor) -> bool:
    return x.shape[0] == 1 and x.stride(3) == 1 and x.stride(2) == x.shape[3]


def _side_words(side: Tensor | Codes) -> tuple[int, ...]:
    """The C structure ``Side``."""
    if isinstance(side, Tensor):
        return (side.data_ptr(), 0, 0, side.stride(1) * side.element_size(), 0, _EXACT_BITS, 1, 1, 0, 0)
    scale, minimum = side.scale, side.minimum
    shared = scale.shape[1] == 1
    return (
        side.data.data_ptr(), scale.data_ptr(), 0 if minimum is None else minimum.data_ptr(),
        side.data.stride(1), 0 if shared else scale.stride(1), side.bits, side.group_tokens,
        side.group_channels, int(scale.dtype is torch.float16), side.offset,
    )  # fmt: skip
