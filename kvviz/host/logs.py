"""Logs as JSON lines that hold numbers and names, never anybody's words.

Knows records of the logging module.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO


class JsonLines(logging.Formatter):
    """``time``, ``level``, ``logger``, ``event``, and the fields of ``extra={"data": {...}}``.

    The event is the message's fixed part: what is filled into it may be a prompt, and so may the text of an
    exception, of which the kind and the places in the code are told.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": str(record.msg),
        }
        line |= getattr(record, "data", {})
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            frames = traceback.extract_tb(record.exc_info[2])
            line["at"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, ensure_ascii=False)


def write_json_lines(stream: TextIO | None = None) -> logging.Handler:
    """From now on kvviz tells what it does, a JSON line each, on ``stream`` (stderr)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("kvviz")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return handler
