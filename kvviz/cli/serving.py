"""Flags of ``app.py``, and a refusal as one sentence. Knows no page and no model."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from kvviz.catalogue import text
from kvviz.errors import KvvizError


def read_flags(default_model: str) -> argparse.Namespace:
    """``host``, ``port`` and ``model``."""
    parser = argparse.ArgumentParser(prog="app.py", description=text("ui.cli.description"))
    parser.add_argument("--host", help=text("ui.cli.host"))
    parser.add_argument("--port", type=int, help=text("ui.cli.port"))
    parser.add_argument("--model", default=default_model, help=text("ui.cli.model"))
    return parser.parse_args()


@contextmanager
def plain_refusals() -> Iterator[None]:
    """End with exit code 2 and the sentence when what is asked for cannot be."""
    try:
        yield
    except KvvizError as error:
        argparse.ArgumentParser(prog="app.py").error(str(error))
