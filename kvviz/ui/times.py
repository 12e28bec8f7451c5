"""A guess of a time, in words that promise no more than a guess can."""

from __future__ import annotations

from kvviz.catalogue import text


def about(ms: float) -> str:
    """In whole seconds or minutes."""
    seconds = max(1, round(ms / 1000))
    return (
        text("ui.lab.seconds", n=seconds) if seconds < 100 else text("ui.lab.minutes", n=round(seconds / 60))
    )
