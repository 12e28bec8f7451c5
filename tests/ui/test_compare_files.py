"""Saving a comparison and opening what was saved, without a browser and without a model."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace

import pytest

from kvviz.report import MOST_BYTES, Report, read, to_json
from kvviz.ui.atlas import SKIP
from kvviz.ui.compare_files import N_OPEN_CONTROLS, CompareFiles
from kvviz.ui.compare_handlers import CompareHandlers
from kvviz.ui.compare_views import PANELS, VIEWS
from kvviz.ui.files import OpenedRun
from kvviz.ui.share import KINDS
from tests.test_report import make_report

WHO, OTHER = SimpleNamespace(session_hash="me"), SimpleNamespace(session_hash="other")
OPENED = ("run", "notice", "first", "second", "row", "line", *VIEWS)


@pytest.fixture
def context(make_context):
    return make_context()


def opened(context, content, who=WHO):
    found = CompareFiles(context).open(who, SimpleNamespace(content=content))
    assert len(found) == N_OPEN_CONTROLS + len(VIEWS)
    return dict(zip(OPENED, found, strict=True))


def saved(context, kind, run_id, who=WHO):
    return CompareFiles(context).save(kind, who, run_id)


def test_a_file_is_shown_without_a_model_and_says_that_it_is_stored(context):
    views = opened(context, to_json(make_report()))
    line = json.loads(views["notice"])
    assert line["kind"] == "info"
    assert line["text"].startswith("Stored, not measured now")
    panel = json.loads(views[PANELS[1]])
    assert panel["segments"]
    assert {metric["kind"] for metric in panel["metrics"]} == {"stored"}
    for name in ("cmp_memory", "cmp_speed"):
        assert json.loads(views[name])["figure"]["data"], name
    columns = json.loads(views["cmp_numbers"])["tables"][0]["columns"][1:-1]
    assert all(column["info"].startswith("stored") for column in columns)
    assert "no attention maps" in json.loads(views["line"])["text"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_opened_can_be_saved_again(context, kind):
    run_id = opened(context, to_json(make_report()))["run"]
    file, line = saved(context, kind, run_id)
    value = json.loads(file)
    content = base64.b64decode(value["base64"]).decode()
    assert line is SKIP
    assert value["name"] == f"kvviz-comparison.{kind}"
    if kind == "csv":
        assert content.splitlines()[0].startswith("configuration,label,key")
        assert "stored" in content
    else:
        assert read(content).comparison.entries == make_report().comparison.entries
        assert opened(context, content)["run"] is not SKIP


def test_the_same_file_twice_is_two_downloads(context):
    run_id = opened(context, to_json(make_report()))["run"]
    (first, _), (second, _) = (saved(context, "json", run_id) for _ in range(2))
    assert json.loads(first)["base64"] == json.loads(second)["base64"]
    assert first != second


def test_nothing_to_save_is_said(context):
    file, line = saved(context, "json", "")
    assert file is SKIP
    assert "no comparison to save" in json.loads(line)["text"]


def test_a_comparison_belongs_to_the_session_that_opened_it(context):
    run_id = opened(context, to_json(make_report()))["run"]
    assert saved(context, "json", run_id, OTHER)[0] is SKIP
    assert isinstance(context.comparisons.get(run_id, "me"), OpenedRun)


#: No report, each in another way.
HOSTILE = (
        "", "{}", "[]", "null", '{"format": "kvviz.comparison", "version": 999}',
        "<p>no report</p>",
        "{" * 100_000,
        '{"format":' + "1" * 5_000 + "}", "x" * (MOST_BYTES + 1), "\ud800", "/etc/passwd",
        "http://127.0.0.1/report.json",
)  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE, ids=lambda content: content[:20])
def test_what_is_no_report_is_refused_in_a_sentence_and_changes_nothing(context, content):
    before = opened(context, to_json(make_report()))["run"]
    views = opened(context, content)
    line = json.loads(views.pop("notice"))
    assert line["kind"] == "error"
    assert line["text"].endswith(".")
    assert all(view is SKIP for view in views.values())
    assert context.comparisons.get(before, "me") is not None


def test_without_records_the_numbers_are_shown_and_the_panels_are_empty(context):
    views = opened(context, to_json(Report(make_report().comparison)))
    assert "no records" in json.loads(views["notice"])["text"]
    assert json.loads(views[PANELS[0]]) == {"void": True}
    assert json.loads(views["cmp_numbers"])["tables"][0]["cells"]


def test_a_mark_of_an_opened_comparison_leads_to_a_sentence(context):
    run_id = opened(context, to_json(make_report()))["run"]
    found = CompareHandlers(context).jump(1, WHO, run_id, "0", "1", 0, 0, None, "log")
    assert "no attention maps" in json.loads(found[3])["text"]
