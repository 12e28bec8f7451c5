"""An experiment's result as up to three figures: which file draws which experiment.

Knows results; does not know how they were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kvviz.experiment import LabResult

MOST_PANELS = 3


class LabPanel(NamedTuple):
    """One figure (a JSON-ready payload); its title is ``lab.<experiment>.panel.<key>.title``."""

    key: str
    payload: dict[str, Any]


#: experiment -> its figures, the most telling first
PANELS: Mapping[str, Callable[[LabResult], list[LabPanel]]] = MappingProxyType({})


def lab_panels(result: LabResult) -> list[LabPanel]:
    """The figures of a result, at most ``MOST_PANELS``."""
    return PANELS[result.experiment](result)
