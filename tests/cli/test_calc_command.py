"""``calc`` in the terminal: nothing is loaded, numbers are those of the formula."""

from __future__ import annotations

import json

from kvviz.__main__ import main
from kvviz.calculator import model, models
from kvviz.presets import preset


def test_json_holds_the_answer(capsys):
    flags = ["--model", "llama-2-7b", "--gpu", "A100 40 GB", "--context", "4096", "--page", "1", "--json"]
    assert main(["calc", *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kv_bytes"] == found["full_bytes"] == 2 << 30
    assert found["weights_bytes"] == 2 * model("Llama-2-7B").parameters
    room = 39 * 2**30 - found["weights_bytes"]
    assert found["room_bytes"] == room
    assert found["largest_context"] == room // 524_288
    assert found["users_that_fit"] == room // (2 << 30)
    assert found["fits"] is True


def test_words_with_presets_flags_and_claims(capsys):
    assert main(["calc", "--preset", "kivi-4", "--window", "64", "--gpu-gib", "20.5", "--claims"]) == 0
    out = capsys.readouterr().out
    assert "20.50 GiB" in out
    assert "2.34 GiB a request" in out
    assert "= 131,072 bytes" in out
    assert "sinks + sealed" in out


def test_flags_reach_the_cache(capsys):
    assert main(["calc", "--preset", "kivi-4", "--window", "64", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cache"] == preset("kivi-4").to_dict() | {"window_size": 64}
    assert "claims" not in found


def test_the_lists(capsys):
    assert main(["calc", "--list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["models"]) == len(models())
    assert main(["calc", "--list"]) == 0
    assert "H100 80 GB" in capsys.readouterr().out


def test_refusals_are_one_sentence(capsys):
    for flags, words in (
        (["--model", "nobody"], "no model"),
        (["--gpu", "abacus"], "no GPU"),
        (["--context", "0"], "context is 0"),
        (["--preset", "int8", "--key", "int8:token:g48:absmax"], "48"),
    ):
        assert main(["calc", *flags]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert words in captured.err
