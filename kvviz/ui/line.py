"""A place in the waiting line, in words. Knows places; does not know who waits, nor for what."""

from __future__ import annotations

import threading
from typing import Any

from kvviz.catalogue import text
from kvviz.host import Line, Place
from kvviz.ui.times import about
from kvviz.ui.views import notice


def place_notice(line: Line, stop: threading.Event) -> dict[str, Any] | None:
    """A notice for whoever waits with the switch ``stop``; None when it does not wait."""
    place = line.place(stop)
    return None if place is None or stop.is_set() else notice(place_words(place), "busy")


def place_words(place: Place) -> str:
    """``Your request is number 3 of 5 waiting. It begins in about 40 s.``"""
    if place.ahead == 0:
        words = text("ui.line.next", waiting=place.waiting)
    else:
        words = text("ui.line.place", place=place.ahead + 1, waiting=place.waiting)
    if place.seconds is None:
        return words
    return f"{words} {text('ui.line.guess', time=about(1000 * place.seconds))}"
