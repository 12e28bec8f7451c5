"""The one place that turns bytes, milliseconds, counts and shares into text for people."""

from __future__ import annotations

import math

from kvviz.catalogue import text

_BYTE_STEPS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def format_bytes(n_bytes: float) -> str:
    """``6635520`` -> ``6.33 MiB``. Binary units, three significant digits."""
    for unit, size in _BYTE_STEPS:
        if abs(n_bytes) >= size:
            return f"{_three(n_bytes / size)} {unit}"
    return f"{n_bytes:.0f} B"


def format_gib(n_bytes: float) -> str:
    """``2516582400`` -> ``2.34 GiB``: always GiB, where numbers stand beside one another."""
    gib = n_bytes / (1 << 30)
    return f"{gib:,.2f} GiB" if abs(gib) >= 1 else f"{_three(gib)} GiB"


def format_ms(ms: float | None) -> str:
    """``1234.5`` -> ``1.23 s``; ``45.61`` -> ``45.6 ms``; nothing measured -> an en dash."""
    if ms is None or not math.isfinite(ms):
        return "–"
    if ms >= 1000:
        return f"{_three(ms / 1000)} s"
    return f"{_three(ms)} ms"


def format_rate(per_second: float | None) -> str:
    """Tokens per second, three significant digits."""
    if per_second is None or not math.isfinite(per_second):
        return "–"
    return text("units.rate", n=_three(per_second))


def format_count(n: int) -> str:
    """``134515008`` -> ``134,515,008``."""
    return f"{n:,}"


def format_share(share: float | None) -> str:
    """``0.3141`` -> ``31.4 %``."""
    if share is None or not math.isfinite(share):
        return "–"
    return f"{100 * share:.1f} %"


def format_bits(bits: float | None) -> str:
    """``4.25`` -> ``4.25 bits``."""
    if bits is None or not math.isfinite(bits):
        return "–"
    return text("units.bits", n=f"{bits:.2f}")


def format_ratio(ratio: float | None) -> str:
    """``4.9123`` -> ``4.91×``."""
    if ratio is None or not math.isfinite(ratio):
        return "–"
    return f"{_three(ratio)}×"


def format_number(x: float | None) -> str:
    """A plain measured number: four significant digits, powers of ten only where they are needed."""
    if x is None or not math.isfinite(x):
        return "–"
    size = abs(x)
    if x == 0 or 1e-4 <= size < 1e6:
        return f"{x:.{max(0, 3 - math.floor(math.log10(size)))}f}" if x else "0"
    return f"{x:.2e}"


def _three(x: float) -> str:
    if x == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(x))))
    return f"{x:.{digits}f}"
