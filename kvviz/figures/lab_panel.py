"""One figure of an experiment, as every figure file of the laboratory hands it over."""

from __future__ import annotations

from typing import Any, NamedTuple


class LabPanel(NamedTuple):
    """One figure (a JSON-ready payload); its title is ``lab.<experiment>.panel.<key>.title``."""

    key: str
    payload: dict[str, Any]
