"""An experiment's result as up to three figures: which file draws which experiment.

Knows results; does not know how they were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from kvviz.experiment import LabResult
from kvviz.figures import (
    lab_bits,
    lab_caches,
    lab_calibration,
    lab_error,
    lab_eviction,
    lab_first_layer,
    lab_key_or_value,
    lab_meaning,
    lab_middle,
    lab_positions,
    lab_quality,
    lab_recall,
    lab_requantize,
    lab_saves,
    lab_sink,
    lab_values,
)
from kvviz.figures.lab_panel import LabPanel
from kvviz.figures.theme import say_stored

__all__ = ["MOST_PANELS", "PANELS", "LabPanel", "lab_panels"]

MOST_PANELS = 3

#: experiment -> its figures, the most telling first
PANELS: Mapping[str, Callable[[LabResult], list[LabPanel]]] = MappingProxyType(
    {
        "sink": lab_sink.panels,
        "meaning": lab_meaning.panels,
        "eviction": lab_eviction.panels,
        "positions": lab_positions.panels,
        "recall": lab_recall.panels,
        "middle": lab_middle.panels,
        "quality": lab_quality.panels,
        "key-or-value": lab_key_or_value.panels,
        "first-layer": lab_first_layer.panels,
        "bits": lab_bits.panels,
        "values": lab_values.panels,
        "calibration": lab_calibration.panels,
        "error": lab_error.panels,
        "requantize": lab_requantize.panels,
        "saves": lab_saves.panels,
        "caches": lab_caches.panels,
    }
)


def lab_panels(result: LabResult, *, is_stored: bool = False) -> list[LabPanel]:
    """The figures of a result, at most ``MOST_PANELS``; where it was read from a file, they say so."""
    made = PANELS[result.experiment](result)
    return [LabPanel(key, say_stored(payload)) for key, payload in made] if is_stored else made
