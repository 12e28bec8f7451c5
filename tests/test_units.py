"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from kvviz import units


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: units.format_bytes(0), "0 B"),
        (lambda: units.format_bytes(1023), "1023 B"),
        (lambda: units.format_bytes(6_635_520), "6.33 MiB"),
        (lambda: units.format_bytes(23_592_960), "22.5 MiB"),
        (lambda: units.format_bytes(538_060_032), "513 MiB"),
        (lambda: units.format_bytes(1 << 30), "1.00 GiB"),
        (lambda: units.format_ms(45.61), "45.6 ms"),
        (lambda: units.format_ms(1234.5), "1.23 s"),
        (lambda: units.format_ms(0), "0 ms"),
        (lambda: units.format_ms(None), "–"),
        (lambda: units.format_ms(math.inf), "–"),
        (lambda: units.format_rate(12.345), "12.3 tok/s"),
        (lambda: units.format_rate(None), "–"),
        (lambda: units.format_count(134_515_008), "134,515,008"),
        (lambda: units.format_share(0.3141), "31.4 %"),
        (lambda: units.format_share(math.nan), "–"),
        (lambda: units.format_bits(4.25), "4.25 bits"),
        (lambda: units.format_bits(None), "–"),
        (lambda: units.format_ratio(4.9123), "4.91×"),
        (lambda: units.format_ratio(None), "–"),
    ],
)
def test_format(call, expected):
    assert call() == expected
