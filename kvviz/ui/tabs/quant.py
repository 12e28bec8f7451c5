"""The Quant lab tab: what does each way of storing keys and values cost, and why?"""

from __future__ import annotations

from kvviz.ui.context import AppContext
from kvviz.ui.experiments import build_experiments
from kvviz.ui.parts import Page

KEY = "quant"


def build(context: AppContext, page: Page) -> None:
    """Lay the tab out and wire it."""
    build_experiments(context, page, "quant")
