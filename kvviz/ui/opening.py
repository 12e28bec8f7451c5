"""From something that an experiment measured to the fields of the Run tab: what was measured can be tried.

Knows results and how a configuration is put into fields; does not know the layout.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from kvviz.config import CacheConfig
from kvviz.ui import form
from kvviz.ui.context import AppContext
from kvviz.ui.rail import name_side

#: fields, label, accordion, tabs
N_FILLED = len(form.CACHE_FIELDS) + 3
RUN_TAB = "run"


class OpenHandlers:
    """Bound to one application's context."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    def offer(self, request: gr.Request, shown: str) -> list[Any]:
        """The configurations of a new result as a list; the button works when there is one."""
        names = list(self._configurations(request, shown))
        first = names[0] if names else None
        return [gr.Dropdown(choices=names, value=first), gr.Button(interactive=bool(names))]

    def open(self, request: gr.Request, model: str, preset: str, shown: str, name: str | None) -> list[Any]:
        """Put the chosen configuration into the fields and show them; nothing where there is none."""
        plain = self._configurations(request, shown).get(str(name))
        if plain is None:
            return [gr.skip()] * N_FILLED
        fields = form.cache_fields(CacheConfig.from_dict(plain))
        label = name_side(self._context, model, preset, *fields)
        return [*fields, label, gr.Accordion(open=True), gr.Tabs(selected=RUN_TAB)]

    def pick(
        self, request: gr.Request, event: gr.EventData, model: str, preset: str, shown: str
    ) -> list[Any]:
        """The same for a point that was clicked."""
        return self.open(request, model, preset, shown, str(event.point))

    def _configurations(self, request: gr.Request, shown: str) -> dict[str, dict[str, Any]]:
        run = self._context.lab_runs.get(shown, str(request.session_hash))
        return run.result.configurations if run is not None and run.result is not None else {}
