"""A line says what happened and where, and nobody's words."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from kvviz.host.logs import write_json_lines


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    logger = logging.getLogger("kvviz")
    before = (logger.level, logger.propagate)
    stream = io.StringIO()
    handler = write_json_lines(stream)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(before[0])
    logger.propagate = before[1]


def told(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_fields_stand_beside_the_event(lines: io.StringIO) -> None:
    logging.getLogger("kvviz.host").info("turn begun", extra={"data": {"kind": "run", "waited_s": 1.5}})
    (line,) = told(lines)
    assert line["logger"] == "kvviz.host"
    assert line["level"] == "info"
    assert (line["kind"], line["waited_s"]) == ("run", 1.5)


def test_what_is_filled_into_a_message_is_left_out(lines: io.StringIO) -> None:
    logging.getLogger("kvviz.ui").warning("cannot read %s", "my secret prompt")
    assert "secret" not in lines.getvalue()
    assert told(lines)[0]["event"] == "cannot read %s"


def test_an_exception_tells_its_kind_and_place_and_not_its_text(lines: io.StringIO) -> None:
    prompt = "my secret prompt"
    try:
        raise ValueError(f"cannot read {prompt}")
    except ValueError:
        logging.getLogger("kvviz.ui").exception("run failed")
    (line,) = told(lines)
    assert line["error"] == "ValueError"
    assert "test_logs.py" in str(line["at"])
    assert "secret" not in lines.getvalue()


def test_one_event_is_one_line(lines: io.StringIO) -> None:
    logging.getLogger("kvviz").info("two\nlines")
    assert len(lines.getvalue().splitlines()) == 1
