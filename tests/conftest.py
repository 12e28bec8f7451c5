"""Shared by all tests: the repository on the path, models made once, settings of the property tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

settings.register_profile(
    "kvviz",
    deadline=None,
    derandomize=True,  # the same examples on every machine: a red test can be repeated
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.load_profile("kvviz")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """One thread for tiny models (threads cost more than they give), all of them for the real one."""
    import torch

    heavy = item.get_closest_marker("real") or item.get_closest_marker("browser")
    torch.set_num_threads((os.cpu_count() or 1) if heavy else 1)


@pytest.fixture(scope="session")
def default_model() -> Any:
    """The real default model, loaded once."""
    from kvviz.models import load

    return load("SmolLM2-135M-Instruct")


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Any]:
    """A factory of random tiny models, each shape made once."""
    from kvviz.models.tiny import tiny_model

    made: dict[Any, Any] = {}

    def make(family: str = "llama", **shape: Any) -> Any:
        key = (family, tuple(sorted(shape.items())))
        if key not in made:
            made[key] = tiny_model(family, **shape)
        return made[key]

    return make
