"""A run as the values of the Offload tab's live views, one builder a view.

Knows records, the desk's choice and words; does not know gradio, nor when a view is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kvviz.catalogue import text
from kvviz.figures import offload
from kvviz.figures.timeline import timeline_at, timeline_figure
from kvviz.record import RunRecord
from kvviz.timeline import link_named
from kvviz.ui.desk import OffloadChoice

Records = Sequence[RunRecord]
OffloadBuilder = Callable[[Records, OffloadChoice], dict[str, Any]]


def timeline(records: Records, choice: OffloadChoice) -> dict[str, Any]:
    """The lanes of the shown step."""
    figure = timeline_figure(records[choice.shown], choice.step)
    return {"name": text("offload.name.timeline"), "figure": figure}


def said(records: Records, choice: OffloadChoice) -> dict[str, Any]:
    """What it came to, in sentences; nothing where the figure says why there is nothing."""
    record = records[choice.shown]
    if timeline_at(record, choice.step) is None:
        return _sentences([])
    return _sentences(offload.sentences(record, choice.shown, choice.step))


def tables(records: Records, choice: OffloadChoice) -> dict[str, Any]:
    """Time and bytes by kind."""
    return {"tables": _known(offload.kind_table(records[choice.shown], choice.step))}


def link(records: Records, choice: OffloadChoice) -> dict[str, Any]:
    """What the chosen link would take for the shown step."""
    record = records[choice.shown]
    known = timeline_at(record, choice.step)
    if known is None:
        return _sentences([])
    return _sentences([offload.link_sentence(known, link_named(choice.link), record.kind)])


def links(records: Records, choice: OffloadChoice) -> dict[str, Any]:
    """What every link would take for the shown step."""
    return {"tables": _known(offload.link_table(records[choice.shown], choice.step))}


def _sentences(said: list[str]) -> dict[str, Any]:
    return {"sentences": said, "fits": True}


def _known(table: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [] if table is None else [table]


#: The views in the order in which the tab declares them.
OFFLOAD: Mapping[str, OffloadBuilder] = MappingProxyType(
    {
        "offload_timeline": timeline,
        "offload_said": said,
        "offload_tables": tables,
        "offload_link": link,
        "offload_links": links,
    }
)
