"""One file a tab: each has a ``KEY`` for its catalogue name and a ``build(context, page)``."""

from __future__ import annotations

from kvviz.ui.tabs import attention, calculator, compare, lab, lessons, offload, quant, run

TABS = (run, attention, lab, quant, offload, compare, lessons, calculator)
