"""The Sink lab tab: does the effect exist, what makes it, what does it do?"""

from __future__ import annotations

from kvviz.ui.context import AppContext
from kvviz.ui.experiments import build_experiments
from kvviz.ui.parts import Page

KEY = "lab"


def build(context: AppContext, page: Page) -> None:
    """Lay the tab out and wire it."""
    build_experiments(context, page, "sink")
