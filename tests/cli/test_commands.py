"""The terminal twin: what stdout gets, what stderr gets, and the exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvviz.__main__ import main
from kvviz.presets import preset, preset_names

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--model", "tiny-random-llama"]
SCORE = ["score", "--start", "10", "--length", "300", "--skip", "50", *TINY]
RUN = ["run", "--prompt", "one two three", "--max-new-tokens", "6", *TINY]


def answer(capsys, *arguments):
    """The one JSON value on stdout of a command that succeeds."""
    assert main([*arguments, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def refusal(capsys, *arguments):
    """The one sentence of a command that is refused."""
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.strip()


def test_score_of_full_precision_differs_from_itself_in_nothing(capsys):
    found = answer(capsys, *SCORE)
    assert found["rows"] == 300 - 1 - 50
    assert found["kl"] == 0
    assert found["top1"] == 1
    assert found["ppl"] == found["ppl_full"]
    assert found["config"]["middle"] == "keep"
    assert (found["start"], found["length"], found["skip"]) == (10, 300, 50)
    assert found["corpus"] == "pydoc-topics"
    assert len(found["corpus_sha256"]) == 64
    assert found["weights_hash"]


def test_score_through_the_full_stack(capsys):
    found = answer(capsys, *SCORE, "--preset", "full-stack")
    assert found["config"] == preset("full-stack").to_dict()
    assert 0 < found["kl"] < 1
    assert found["effective_bits"] == 6.25
    sealed = found["bytes"]["host"]["offloaded"]
    values = 2 * 64 * 2 * 64 * 4  # blocks, tokens, KV heads, head_dim, layers
    assert sealed == {"codes": values + values // 2, "scales": 2 * 2 * values // 64}
    assert found["bytes_reserved"]["host"]["offloaded"]["codes"] >= sealed["codes"]


def test_flags_override_the_preset(capsys):
    flags = [
        "--sink",
        "2",
        "--window",
        "64",
        "--block",
        "32",
        "--key",
        "fp8",
        "--value",
        "none",
        "--offload",
        "none",
    ]
    flags += ["--prefill", "exact", "--chunk", "70", "--position", "in_cache"]
    found = answer(capsys, *SCORE, "--preset", "full-stack", *flags)
    assert found["config"] == {
        "sink_size": 2,
        "window_size": 64,
        "middle": "quantize",
        "block_size": 32,
        "key": "fp8",
        "value": "none",
        "position": "in_cache",
        "offload": "none",
        "prefill": "exact",
    }
    assert found["chunk"] == 70


def test_score_of_a_file(capsys, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abc " * 30, encoding="utf-8")
    found = answer(capsys, "score", "--text", str(path), "--length", "100", "--skip", "0", *TINY)
    assert found["corpus"] == str(path)
    assert found["tokens"] == 100


def test_run_tells_text_bytes_times_and_mass(capsys):
    found = answer(capsys, *RUN, "--preset", "sinks-window", "--seed", "3", "--temperature", "1")
    assert 1 <= len(found["token_ids"]) <= 6
    assert found["status"] in ("length", "eos")
    assert found["ttft_ms"] > 0
    assert found["bytes_total"] == sum(
        n for tiers in found["bytes"].values() for parts in tiers.values() for n in parts.values()
    )
    assert len(found["tier_mass"]) == 4
    for layer in found["tier_mass"]:
        assert sum(layer.values()) == pytest.approx(1, abs=1e-5)
        assert layer["quantized"] == layer["offloaded"] == 0
    assert found["config"]["sampling"] == {"temperature": 1.0, "top_p": 1.0, "seed": 3}


def test_a_seed_repeats_a_run(capsys):
    again = [answer(capsys, *RUN, "--temperature", "2", "--seed", "5")["token_ids"] for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.parametrize("written", ["héllo", "héllo\n"])
def test_prompt_from_a_file_without_chat(capsys, tmp_path, written):
    path = tmp_path / "prompt.txt"
    path.write_text(written, encoding="utf-8")
    found = answer(capsys, "run", "--prompt-file", str(path), "--no-chat", "--max-new-tokens", "1", *TINY)
    assert found["prompt_tokens"] == len("héllo".encode())
    assert found["config"]["prompt"] == "héllo"


def test_presets_lists_all(capsys):
    assert [entry["name"] for entry in answer(capsys, "presets")] == preset_names()
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == preset_names()


def test_tables_for_people(capsys):
    assert main(SCORE) == 0
    assert "top-1 agreement" in capsys.readouterr().out
    assert main(RUN) == 0
    assert "attention mass, sink" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*SCORE, "--preset", "nothing"], ["nothing", "full-stack"]),
        ([*SCORE, "--start", "-1"], ["-1", "--start"]),
        ([*SCORE, "--length", "100000000"], ["100000010", "--length"]),
        ([*SCORE, "--skip", "299"], ["299", "300"]),
        ([*SCORE, "--text", "/no/such/file"], ["/no/such/file"]),
        ([*SCORE, "--window", "0"], ["window_size", "0"]),
        ([*SCORE, "--middle", "sometimes"], ["sometimes", "evict"]),
        ([*SCORE, "--chunk", "0"], ["chunk", "0"]),
        ([*SCORE, "--preset", "k8v4", "--key", "int8:token:g48:absmax"], ["48", "64"]),
        (["run", "--prompt", " ", *TINY], ["prompt"]),
        (["run", "--prompt-file", "/no/such/file", *TINY], ["/no/such/file"]),
        (["run", "--prompt", "a", "--model", "tiny-random-x"], ["x", "llama"]),
    ],
)
def test_refusals_are_one_sentence(capsys, arguments, words):
    sentence = refusal(capsys, *arguments)
    assert all(word in sentence for word in words), sentence


def test_stdout_of_the_real_process_is_one_object():
    done = subprocess.run(
        [sys.executable, "-m", "kvviz", *SCORE, "--preset", "k8v4", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["effective_bits"] == 6.25
    assert "300 of 300 tokens" in done.stderr


@pytest.mark.parametrize("command", [SCORE, RUN])
def test_a_warning_from_the_weights_is_told_on_stderr(capsys, monkeypatch, command):
    monkeypatch.setattr(
        "kvviz.models.LanguageModel.warnings", lambda self, cache: [f"4 bits: {cache.key.spec}"]
    )
    assert main([*command, "--preset", "int4-naive", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    assert captured.err.splitlines().count("4 bits: int4:token:g64:absmax") == 1
