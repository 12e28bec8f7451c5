"""axe-core on what a page shows now."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

GRAVE = ("serious", "critical")


def axe() -> str:
    """The script, as the Python package carries it."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def violations(page: Page) -> list[str]:
    """What axe-core finds grave in what is visible, with the first places."""
    page.evaluate(axe())
    found: list[dict[str, Any]] = page.evaluate(
        "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations"
    )
    return [
        f"{one['id']}: {[(node['target'], node['failureSummary'][:300]) for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in GRAVE
    ]
