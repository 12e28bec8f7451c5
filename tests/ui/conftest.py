"""A page application built from stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kvviz import lab
from kvviz.config import CacheConfig
from kvviz.engine import summarize
from kvviz.ui.context import AppContext, Presets
from kvviz.ui.loading import Loader
from tests.builders import FULL, STACK
from tests.ui.fakes import FakeComparing, FakeEngine, FakeRecompute, FakeStore

CACHES: dict[str, CacheConfig] = {"full": FULL, "full-stack": STACK}


@pytest.fixture(scope="session")
def make_context() -> Callable[..., AppContext]:
    """An application context over stand-ins; any of them can be given."""

    def make(
        engine: Any = None, store: Any = None, recompute: Any = None, comparing: Any = None
    ) -> AppContext:
        return AppContext(
            compare=engine or FakeEngine(),
            comparing=comparing or FakeComparing(),
            lab=lab,
            recompute=recompute or FakeRecompute(),
            summarize=summarize,
            loader=Loader(store or FakeStore()),
            models=[SimpleNamespace(name="tiny", label="tiny")],
            presets=Presets(tuple(CACHES), lambda name: f"the {name}", CACHES.__getitem__),
            prompts=[SimpleNamespace(key="q", label="question", text="What?", use_chat_template=True)],
            default_model="tiny",
        )

    return make
