"""What the environment asks for, as the hosting of one application. Only ``app.py`` hands it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvviz.host.hosting import Hosting
from kvviz.host.limits import Limits
from kvviz.host.logs import write_json_lines
from kvviz.host.memory import Memory


def open_hosting(
    environment: Mapping[str, str], model: str, free_device_bytes: Callable[[str], int]
) -> Hosting:
    """Limits, line and memory guard; with ``KVVIZ_LOG_JSON``, or in public without it, logs as JSON lines.

    Raises:
        ConfigError: a variable that cannot be read.
    """
    limits = Limits.from_environment(environment, model)
    if limits.log_json:
        write_json_lines()
    return Hosting(limits, Memory(device=free_device_bytes))
