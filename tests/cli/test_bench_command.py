"""``bench quality``: the README's table, from one list, on the design's slice unless told otherwise."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from kvviz import lab
from kvviz.__main__ import main
from kvviz.schemes import schemes

NAMES = ["int8", "int4-channel"]
TINY = ["--model", "tiny-random-llama"]
SMALL = ["--set", "length=300", "--set", "skip=200", "--set", f"schemes={','.join(NAMES)}", *TINY]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_markdown_json_and_csv_tell_the_same_numbers(capsys, tmp_path: Path):
    assert main(["bench", "quality", *SMALL, "--csv", str(tmp_path)]) == 0
    heads, marks, *lines = capsys.readouterr().out.strip().splitlines()
    assert len({len(cells(line)) for line in (heads, marks, *lines)}) == 1
    assert main(["bench", "quality", *SMALL, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    plain = json.loads(out)
    with (tmp_path / "quality-quality.csv").open() as file:
        written = list(csv.DictReader(file))
    assert len(lines) == len(written) == len(NAMES)
    for line, row, one in zip(lines, written, schemes(NAMES), strict=True):
        shown = dict(zip(cells(heads), cells(line), strict=True))
        assert shown["keys"] == f"`{row['pair_key']}`" == f"`{one.key}`"
        assert shown["KL to full"] == f"{float(row['kl']):.5f}"
        assert shown["perplexity"] == f"{float(row['ppl']):.4f}"
        assert shown["change"] == f"{100 * float(row['pair_ppl_change']):+.2f} %"
        assert shown["effective bits"] == f"{float(row['pair_bits']):.2f}"
    assert [row["kl"] for row in plain["tables"]["quality"]] == [float(row["kl"]) for row in written]
    assert plain["settings"]["start"] == lab.FULL_SLICE["start"]


def test_the_slice_is_the_design_s_unless_told_otherwise(capsys, monkeypatch):
    asked = []

    def perform(model, name, given):
        asked.append((name, given))
        return iter(())

    monkeypatch.setattr(lab, "perform", perform)
    with pytest.raises(RuntimeError):
        main(["bench", "quality", *TINY])
    assert asked == [("quality", {"start": 3000, "length": 2048, "skip": 512})]


def test_speed_is_a_table_too(capsys, monkeypatch):
    given = ["--set", "contexts=1024", "--set", "caches=dynamic,full", "--set", "rounds=3"]
    assert main(["bench", "speed", *given, *TINY]) == 0
    heads, marks, *lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 2
    assert len({len(cells(line)) for line in (heads, marks, *lines)}) == 1
    shown = dict(zip(cells(heads), cells(lines[0]), strict=True))
    assert shown["cache"] == "transformers DynamicCache"
    assert shown["× DynamicCache"] == "1.00"


def test_only_known_tables(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "patience"])
    assert ended.value.code == 2
