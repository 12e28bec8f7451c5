"""Quantize and restore, in numpy, straight from the rules of the spec strings.

Shares no code with the quantizers under test: codes are plain integers, nothing is packed.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache
from typing import NamedTuple

import numpy as np


class Coded(NamedTuple):
    """``codes`` and ``restored`` have the shape of the input ``(H, T, D)``; metadata is broadcast to it.
    ``outliers`` is True where a value is stored exactly; its code says nothing."""

    codes: np.ndarray
    restored: np.ndarray
    scale: np.ndarray
    minimum: np.ndarray | None
    outliers: np.ndarray | None = None


def quantize(x: np.ndarray, spec: str, block: int) -> Coded:
    """Every whole block of ``x (H, T, D)`` apart; ``T`` is a multiple of ``block``. A ``(T, D)`` array is one
    head. ``none`` gives the values back."""
    if x.ndim == 2:
        coded = quantize(x[None], spec, block)
        return Coded(*(None if part is None else part[0] for part in coded))
    assert x.shape[1] % block == 0
    base, *modifiers = spec.split("+")
    assert not modifiers or base != "none"
    blocks = [_modified(x[:, t : t + block], base, modifiers) for t in range(0, x.shape[1], block)]
    if not blocks:
        return Coded(x.astype(int), x, x, None)
    columns = list(zip(*blocks, strict=True))
    return Coded(*(None if part[0] is None else np.concatenate(part, axis=1) for part in columns))


def _modified(x: np.ndarray, base: str, modifiers: list[str]) -> Coded:
    """One block: outliers out, transform, codes, transform, outliers in."""
    modifiers = list(modifiers)
    mask, rest = None, x
    if modifiers and modifiers[0].startswith("outliers"):
        mask, rest = _without_outliers(x, base, modifiers.pop(0).removeprefix("outliers"))
    if not modifiers:
        coded = _block(rest, base)
        restored = coded.restored
    else:
        assert modifiers == ["hadamard"]
        turn = walsh(x.shape[-1])
        coded = _block(rest @ turn, base)
        restored = coded.restored @ turn
    if mask is not None:
        restored = np.where(mask, x, restored)
    return coded._replace(restored=restored, outliers=mask)


@cache
def walsh(channels: int) -> np.ndarray:
    """Entry by entry: the sign is the parity of the common bits of row and column, inside each block."""
    size = next(s for s in (1 << n for n in range(20, -1, -1)) if channels % s == 0)
    turn = np.zeros((channels, channels))
    for row in range(channels):
        for column in range(row // size * size, row // size * size + size):
            turn[row, column] = (-1.0) ** ((row & column) % size).bit_count() / math.sqrt(size)
    return turn


def _without_outliers(x: np.ndarray, base: str, percent: str) -> tuple[np.ndarray, np.ndarray]:
    """Which values are kept apart, and the block with each group's smallest magnitude in their place."""
    fields = base.split(":")
    group = next((int(f[1:]) for f in fields if f[0] == "g"), 1)
    head, token, channel = np.indices(x.shape)
    if "token" in fields:
        label = (head * x.shape[1] + token) * x.shape[2] + channel // group
    elif "channel" in fields:
        label = (head * x.shape[1] + token // group) * x.shape[2] + channel
    else:
        label = head if "head" in fields else np.zeros_like(head)
    # by group, then the largest magnitude first, then the first place first
    order = np.lexsort((np.arange(x.size), -np.abs(x).ravel(), label.ravel()))
    order = order.reshape(len(np.unique(label)), -1)
    exact = Decimal(percent) * order.shape[1] / 100
    count = max(1, int(exact.quantize(Decimal(1), ROUND_HALF_EVEN)))
    mask, rest = np.zeros(x.size, bool), x.ravel().copy()
    mask[order[:, :count]] = True
    rest[order[:, :count]] = x.ravel()[order[:, -1:]]
    return mask.reshape(x.shape), rest.reshape(x.shape)


def _block(x: np.ndarray, spec: str) -> Coded:
    if spec == "none":
        return Coded(np.zeros(x.shape, int), x, np.zeros_like(x), None)
    fields = spec.split(":")
    kind = fields.pop(0)
    meta = np.float32 if "m32" in fields else np.float16
    axis = next((f for f in fields if f in ("token", "channel", "head", "tensor")), "tensor")
    group = next((int(f[1:]) for f in fields if f[0] == "g"), None)

    def per_group(reduce: np.ufunc) -> np.ndarray:
        heads, tokens, channels = x.shape
        if axis == "token":
            small = reduce.reduce(x.reshape(heads, tokens, channels // group, group), axis=3)
            return np.repeat(small, group, axis=2)
        if axis == "channel":
            small = reduce.reduce(x.reshape(heads, tokens // group, group, channels), axis=2)
            return np.repeat(small, group, axis=1)
        over = (1, 2) if axis == "head" else (0, 1, 2)
        return np.broadcast_to(reduce.reduce(x, axis=over, keepdims=True), x.shape)

    def stored(metadata: np.ndarray) -> np.ndarray:
        # torch turns float64 into float16 by way of float32: the nearest 16-bit value, but for rare ties
        return metadata.astype(np.float32).astype(meta).astype(x.dtype)

    low, high = per_group(np.minimum), per_group(np.maximum)
    biggest = np.maximum(np.abs(low), np.abs(high))
    if kind == "fp8":
        scale = stored(biggest / x.dtype.type(448))
        codes = e4m3_codes(_safe_divide(x, scale))
        return Coded(codes, E4M3_VALUES[codes].astype(x.dtype) * scale, scale, None)
    if kind == "nf4":
        scale = stored(biggest)
        codes = np.abs(_safe_divide(x, scale)[..., None] - NF4_VALUES).argmin(-1)  # a tie: the lower one
        return Coded(codes, NF4_VALUES[codes] * scale, scale, None)
    bits = int(kind.removeprefix("int"))
    if "absmax" in fields:
        top = 2 ** (bits - 1) - 1
        scale = stored(biggest / x.dtype.type(top))
        codes = np.clip(np.rint(_safe_divide(x, scale)), -top, top).astype(int)
        return Coded(codes, codes.astype(x.dtype) * scale, scale, None)
    top = 2**bits - 1
    scale, minimum = stored((high - low) / x.dtype.type(top)), stored(low)
    codes = np.clip(np.rint(_safe_divide(x - minimum, scale)), 0, top).astype(int)
    return Coded(codes, minimum + codes.astype(x.dtype) * scale, scale, minimum)


def _safe_divide(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.divide(x, scale, out=np.zeros_like(x), where=scale > 0)


def _normal_quantile(probability: float) -> float:
    """By bisection on the distribution function."""
    low, high = -10.0, 10.0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if math.erf(middle / math.sqrt(2)) < 2 * probability - 1 else (low, middle)
    return middle


def _nf4_values() -> np.ndarray:
    """Probabilities evenly from 0.9677083 to the median, 9 of them above it and 8 below, the median once."""
    above = [_normal_quantile(p) for p in np.linspace(0.5, 0.9677083, 9)[1:]]
    below = [_normal_quantile(p) for p in np.linspace(1 - 0.9677083, 0.5, 8)[:-1]]
    return np.array([*below, 0.0, *above]) / above[-1]


NF4_VALUES = _nf4_values()


def _enumerate_e4m3() -> np.ndarray:
    """All 256 values of the format: sign, 4 exponent bits (bias 7), 3 mantissa bits, no infinity."""
    values = np.empty(256)
    for code in range(256):
        sign = -1.0 if code & 0x80 else 1.0
        exponent, mantissa = (code >> 3) & 0xF, code & 0x7
        if exponent == 0:
            magnitude = mantissa / 8 * 2.0**-6
        elif exponent == 15 and mantissa == 7:
            magnitude = np.nan
        else:
            magnitude = (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        values[code] = sign * magnitude
    return values


E4M3_VALUES = _enumerate_e4m3()


def e4m3_codes(x: np.ndarray) -> np.ndarray:
    """The nearest value's code, ties to the even code; magnitudes above 448 become 448."""
    positive = E4M3_VALUES[:127]
    magnitude = np.minimum(np.abs(x).astype(np.float64), 448.0)
    above = np.clip(np.searchsorted(positive, magnitude), 1, 126)
    below = above - 1
    to_below, to_above = magnitude - positive[below], positive[above] - magnitude
    even = np.where(below % 2 == 0, below, above)
    code = np.where(to_below < to_above, below, np.where(to_above < to_below, above, even))
    return np.where(np.signbit(x), code + 128, code)


def unpack_bytes(packed: np.ndarray, bits: int, length: int) -> np.ndarray:
    """Codes of ``packed (..., n)`` bytes, read as one stream of bits, lowest first."""
    stream = np.unpackbits(packed, axis=-1, bitorder="little", count=bits * length)
    return stream.reshape(*packed.shape[:-1], length, bits).astype(int) @ (1 << np.arange(bits))
