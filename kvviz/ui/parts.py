"""What the tabs of one page hand to one another while it is built: components, no behaviour.

Knows component types; does not know what a tab does with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import gradio as gr

from kvviz.ui.compare_form import CompareRail
from kvviz.ui.compare_handlers import MapControls
from kvviz.ui.handlers import ViewControls
from kvviz.ui.rail import Rail
from kvviz.ui.share import FileParts
from kvviz.ui.status import Header

#: Whatever uses the model shares this queue of the page. It lets all in: the line of ``kvviz.host`` decides
#: whose turn it is, because it can say how long the line is.
MODEL_QUEUE = "model"
RUNS_AT_ONCE = None


@dataclass(frozen=True)
class RunParts:
    """The Run tab: its rail, its live views by name, the controls that choose what they show."""

    rail: Rail
    views: dict[str, gr.HTML]
    controls: ViewControls
    run_id: gr.State
    model_watch: gr.Timer


@dataclass(frozen=True)
class AtlasParts:
    """The Attention tab: buttons and notice that do what the rail's do, and its live views by name."""

    run: gr.Button
    stop: gr.Button
    notice: gr.HTML
    recompute_notice: gr.HTML
    views: dict[str, gr.HTML]


@dataclass(frozen=True)
class OffloadParts:
    """The Offload tab: its live views by name."""

    views: dict[str, gr.HTML]


@dataclass(frozen=True)
class CompareParts:
    """The Compare tab: its rail, its live views by name, what chooses the maps, and the line above them."""

    rail: CompareRail
    views: dict[str, gr.HTML]
    controls: MapControls
    line: gr.HTML
    run_id: gr.State
    files: FileParts


@dataclass
class Page:
    """Filled by the tabs in their order."""

    header: Header
    tab_bar: gr.Tabs | None = None
    tabs: dict[str, gr.Tab] = field(default_factory=dict)
    run: RunParts | None = None
    atlas: AtlasParts | None = None
    offload: OffloadParts | None = None
    compare: CompareParts | None = None
