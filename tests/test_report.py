"""Reports: the same again when read, bounded, escaped; hostile files are refused in a sentence."""

from __future__ import annotations

import copy
import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from kvviz.__main__ import main
from kvviz.array_text import ROUNDED, Allowance, pack_exact, pack_json, pack_rounded, unpack, unpack_json
from kvviz.config import RunConfig
from kvviz.engine import summarize
from kvviz.errors import KvvizError
from kvviz.events import TokenLabel
from kvviz.figures.report_page import report_page
from kvviz.record import RunRecord
from kvviz.record_text import from_text, to_text
from kvviz.report import CLOSING, MOST_BYTES, OPENING, Report, read, to_csv, to_json
from tests.builders import FULL, STACK, make_record
from tests.comparisons import make_comparison

EVIL = '</script><script>alert("x")</script><img src=http://evil.example/x onerror=alert(1)>'


def make_report(prompt: str = "made up", n_new: int = 6) -> Report:
    records = []
    for label, cache, ids in (("full", FULL, range(50, 50 + n_new)), ("stack", STACK, range(49, 49 + n_new))):
        record = make_record(8, n_new, cache=cache, label=label, generated_ids=list(ids))
        config = RunConfig.from_dict(record.config) if n_new else None
        assert config is not None
        records.append(replace(record, config=replace(config, prompt=prompt).to_dict()))
    return Report(summarize(records, "2026-01-01T00:00:00+00:00"), tuple(records))


def refused(act) -> KvvizError:
    with pytest.raises(KvvizError) as refusal:
        act()
    assert "\n" not in str(refusal.value)
    return refusal.value


@pytest.mark.parametrize("form", [to_json, report_page])
def test_a_report_is_the_same_when_it_is_read(form) -> None:
    report = make_report(EVIL + "東京 ${x}\u2028")
    again = read(form(report))
    assert again.comparison == replace(report.comparison, is_stored=True)
    assert {row.kind for row in again.comparison.rows()} == {"stored"}
    for old, new in zip(report.records, again.records, strict=True):
        assert new.is_stored
        assert new.kind == "stored"
        for name in ("status", "config", "model", "prompt_ids", "generated_ids", "labels", "text",
                     "logprobs", "step_ms", "spans", "memory", "ttft_ms", "tpot_ms"):  # fmt: skip
            assert getattr(new, name) == getattr(old, name), name
        for a, b in zip(old.tier_mass + old.received, new.tier_mass + new.received, strict=True):
            np.testing.assert_allclose(a, b, atol=1 / 8000)
        for a, b in zip(old.head_summary, new.head_summary, strict=True):
            assert a.rows == b.rows
            np.testing.assert_allclose(a.entropy, b.entropy, atol=1e-4)
        np.testing.assert_allclose(old.seal_error.value_error, new.seal_error.value_error, rtol=1e-6)
        assert new.attention is None


def test_a_page_needs_nothing_and_runs_nothing() -> None:
    page = report_page(make_report(EVIL))
    assert "default-src 'none'" in page
    shown = page.replace(re.search(re.escape(OPENING) + "[^<]*", page)[0], "")
    assert "evil.example" in shown, "the prompt is shown"
    assert "<img" not in shown
    assert "<script>" not in shown
    assert page.count("<script") == 1
    outside = re.sub(r"&lt;img src=http://evil.example/x[^<]*", "", shown)
    assert not re.search(r"https?://|url\((?!#hatch)|@import|src=|href=", outside)
    for words in ("measured", "computed", "2·L·H_kv·D·T·2", "hash of the weights", "0" * 16, "seed", "gradio",
                  "torch", "transformers", "<svg", "<mark>"):  # fmt: skip
        assert words in shown, words


def test_a_comparison_with_scores_has_its_text_and_worst_tokens() -> None:
    page = report_page(Report(make_comparison(others=3)))
    for words in (
        "Perplexity in full precision",
        "pydoc-topics",
        "ab" * 32,
        "Tokens that lost most",
        "D: stack 2",
    ):
        assert words in page, words
    assert read(page).comparison.text is not None


def test_csv_has_every_number_with_its_kind_and_no_formula() -> None:
    report = make_report()
    entries = (replace(report.comparison.entries[0], label="=cmd()"), *report.comparison.entries[1:])
    rows = list(csv.DictReader(io.StringIO(to_csv(Report(replace(report.comparison, entries=entries))))))
    assert {row["kind"] for row in rows} == {"measured", "computed"}
    assert {row["label"] for row in rows} == {"'=cmd()", "stack"}
    (held,) = [r for r in rows if r["key"] == "kv_bytes" and r["configuration"] == "B"]
    assert int(held["value"]) == report.records[1].memory[-1].used_bytes


def test_what_is_large_keeps_fewer_steps_and_never_made_up_ones() -> None:
    (record,) = make_report(n_new=40).records[1:]
    whole = len(json.dumps(to_text([record], 10**9)))
    (plain,) = to_text([record], whole - 500)
    again = from_text(plain, Allowance(1 << 26))
    left_out = [np.isnan(mass).all() for mass in again.tier_mass]
    assert any(left_out)
    assert not left_out[-1]
    assert [len(r) == 0 for r in again.received] == left_out
    assert refused(lambda: to_text([record], 100)).code == "file_large"


def test_runs_that_have_not_ended_make_no_report() -> None:
    live = make_record(8, 4, end=None)
    assert refused(lambda: summarize([live], "")).code == "file_not_ended"
    assert refused(lambda: summarize([RunRecord()], "")).code == "file_not_ended"


def packed_bomb() -> str:
    return pack_json("[" * 3_000_000)


def spoil(change) -> str:
    plain = json.loads(to_json(make_report()))
    change(plain)
    return json.dumps(plain)


def header(change):
    """A change of the second record's header."""

    def act(plain) -> None:
        record = plain["records"][1]
        found = json.loads(unpack_json(record["header"], Allowance(1 << 26)))
        change(found)
        record["header"] = pack_json(json.dumps(found))

    return act


def array(name: str, values):
    return lambda plain: plain["records"][1]["arrays"].__setitem__(name, values)


SPOILT = {
    "one record": lambda p: p["records"].pop(),
    "no list": lambda p: p.__setitem__("records", {"0": 1}),
    "no object": lambda p: p["records"].__setitem__(1, 5),
    "deep header": lambda p: p["records"][1].__setitem__("header", packed_bomb()),
    "header that is none": lambda p: p["records"][1].__setitem__("header", "####"),
    "unknown array": array("evil", pack_exact(np.zeros(3), "<f8")),
    "pickle kind": array("step_ms", {"kind": "object", "shape": [6], "data": "gASVAA=="}),
    "wrong shape": array("step_ms", pack_exact(np.zeros(7), "<f8")),
    "huge shape": array("prompt_ids", {"kind": "<i4", "shape": [2_000_000_000], "data": ""}),
    "negative shape": array("prompt_ids", {"kind": "<i4", "shape": [-1], "data": ""}),
    "too many bytes": array("prompt_ids", pack_exact(np.zeros(9), "<i4") | {"shape": [8]}),
    "not finite": array("step_ms", pack_exact(np.full(6, np.inf), "<f8")),
    "unit": array("tier_mass", pack_rounded(np.ones((6, 2, 4, 5))) | {"unit": 1e300}),
    "shares above 1": array("tier_mass", pack_rounded(np.full((6, 2, 4, 5), 7.0))),
    "status": header(lambda h: h.update(status="running")),
    "version": header(lambda h: h.update(version=99)),
    "layers": header(lambda h: h["model"].update(n_layers=10**6)),
    "other model": header(lambda h: h["model"].update(weights_hash="1" * 16)),
    "location": header(lambda h: h["memory"][0]["used"].update(moon={"sink": {"exact": 1}})),
    "negative bytes": header(lambda h: h["memory"][0]["used"].update(device={"sink": {"exact": -1}})),
    "spans": header(lambda h: h["spans"].__setitem__(0, [["sink", 0, 10**6]])),
    "labels": header(lambda h: h["labels"].pop()),
    "hex": header(lambda h: h["labels"].__setitem__(0, ["a", "zz"])),
    "config": header(lambda h: h["config"].update(max_new_tokens=-5)),
    "path in the config": header(lambda h: h["config"].update(open="/etc/passwd")),
    "prompt": header(lambda h: h["config"].update(prompt=5)),
    "text": header(lambda h: h.update(text=None)),
}


@pytest.mark.parametrize("name", SPOILT)
def test_spoilt_records_are_refused(name: str) -> None:
    assert refused(lambda: read(spoil(SPOILT[name]))).code in ("file_wrong", "record_version", "int_minimum")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "file_none"),
        ("hello", "file_none"),
        ("<html></html>", "file_none"),
        (OPENING + "{}" + CLOSING + OPENING + "{}" + CLOSING, "file_none"),
        (OPENING + "{}" + CLOSING, "comparison_unreadable"),
        ("{", "comparison_unreadable"),
        ('{"a":' * 50_000, "comparison_unreadable"),
        ('{"format": "kvviz-comparison", "version": 1e999}', "comparison_version"),
        ("x" * (MOST_BYTES + 1), "file_large"),
        ("\ud800", "file_none"),
        ("\x80\x04\x95pickle", "file_none"),
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused(content: str, code: str) -> None:
    assert refused(lambda: read(content)).code == code


def test_arrays_survive_text() -> None:
    exact = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    allowance = Allowance(10_000)
    assert np.array_equal(unpack(pack_exact(exact, "<f4"), "<f4", (3, -1), allowance), exact)
    assert allowance.n_bytes == 10_000 - 8 * 12
    shares = np.abs(exact).astype(np.float64)
    shares[1, 2] = np.nan
    again = unpack(pack_rounded(shares), ROUNDED, (3, 4), allowance)
    np.testing.assert_allclose(again, shares, atol=np.nanmax(shares) / 8190, equal_nan=True)
    assert (
        refused(lambda: unpack(pack_exact(exact, "<f4"), "<f4", (3, 4), Allowance(50))).code == "file_wrong"
    )


def test_a_label_is_no_markup_and_characters_stay(tmp_path) -> None:
    report = make_report()
    evil = copy.deepcopy(report.records[1])
    evil.labels[-1] = TokenLabel("<b>", b"<b>")
    evil.config["label"] = EVIL
    page = report_page(Report(summarize([report.records[0], evil], "")))
    assert "<img" not in page
    assert page.count("<script") == 1


def test_the_terminal_makes_a_page_from_a_file(capsys, tmp_path) -> None:
    saved, page, numbers = (tmp_path / name for name in ("a.json", "b.html", "c.csv"))
    saved.write_text(to_json(make_report()), encoding="utf-8")
    assert main(["report", str(saved), "--html", str(page), "--csv", str(numbers)]) == 0
    assert len(read(page.read_text(encoding="utf-8")).records) == 2
    assert "stored" in numbers.read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["report", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["numbers"]["generated"] == [6, 6]
    assert main(["report", str(page)]) == 0
    assert "stack" in capsys.readouterr().out
    for bad in (str(tmp_path), str(tmp_path / "none"), "/dev/zero"):
        assert main(["report", bad]) == 2
