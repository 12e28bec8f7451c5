"""Where weights come from, and what a person reads when they cannot be had."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections import namedtuple

import pytest
import torch

from kvviz.errors import ModelError
from kvviz.models import ModelStore, convert, known_models, load, sources
from kvviz.models.tiny import tiny_model

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def no_wheel(monkeypatch, tmp_path):
    """An empty cache, nothing installed, and a network that is away."""
    monkeypatch.setenv("KVVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "_installed_gguf", lambda: None)
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    return tmp_path / "cache"


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("KVVIZ_CACHE", str(tmp_path / "own"))
    assert sources.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("KVVIZ_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert sources.cache_folder() == tmp_path / "kvviz"


def test_no_network_is_one_sentence_after_the_fallback_was_announced(no_wheel, monkeypatch):
    from kvviz.models import load as module_function
    from kvviz.models.load import HfApi

    def away(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.setattr(HfApi, "model_info", away)
    told = []
    with pytest.raises(ModelError) as refusal:
        module_function("SmolLM2-135M-Instruct", progress=lambda sentence, share: told.append(sentence))
    assert refusal.value.code == "default_unavailable"
    assert any("unrounded" in str(sentence) for sentence in told)


def test_no_disk_space_is_said_before_anything_is_fetched(no_wheel, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 9, 1_000_000))
    with pytest.raises(ModelError) as refusal:
        load("SmolLM2-135M-Instruct")
    assert refusal.value.code == "disk_space"
    assert "1 MB are free" in str(refusal.value)


def test_a_disk_that_fills_up_is_a_sentence(tmp_path):
    with pytest.raises(ModelError) as refusal, sources.disk_errors(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert refusal.value.code == "disk_full"


def test_a_wrong_file_is_not_used(no_wheel, monkeypatch):
    no_wheel.mkdir()
    (no_wheel / sources.GGUF_NAME).write_bytes(b"not these")
    with pytest.raises(sources.WheelUnavailable):
        sources.find_gguf(no_wheel, sources.silent)


@pytest.mark.parametrize("name", ["", "tiny-random-nothing"])
def test_unknown_names(name):
    with pytest.raises(ModelError):
        load(name)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ModelError) as refusal:
        load(str(tmp_path))
    assert str(tmp_path) in str(refusal.value)


def test_the_default_comes_first():
    assert known_models()[0].name == "SmolLM2-135M-Instruct"


def test_copy_round_trip_is_bit_identical(tmp_path):
    model = tiny_model(dtype=torch.float32)
    convert.keep_copy(model.network, model.tokenizer, tmp_path / "copy")
    loaded = convert.load_copy(tmp_path / "copy")
    assert loaded is not None
    network, tokenizer = loaded
    for (name, ours), (other, theirs) in zip(
        model.network.state_dict().items(), network.state_dict().items(), strict=True
    ):
        assert name == other
        assert torch.equal(ours, theirs)
    assert tokenizer("é")["input_ids"] == model.tokenizer("é")["input_ids"]
    assert tokenizer.chat_template == model.tokenizer.chat_template


def test_a_cut_copy_is_no_copy(tmp_path):
    model = tiny_model(dtype=torch.float32)
    convert.keep_copy(model.network, model.tokenizer, tmp_path / "copy")
    weights = tmp_path / "copy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    assert convert.load_copy(tmp_path / "copy") is None


def test_a_copy_whose_bytes_were_changed_is_no_copy(tmp_path):
    model = tiny_model(dtype=torch.float32)
    convert.keep_copy(model.network, model.tokenizer, tmp_path / "copy")
    weights = tmp_path / "copy" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert convert.load_copy(tmp_path / "copy") is None


def test_store_shares_models_and_forgets_failures():
    store = ModelStore()
    assert store.loaded("tiny-random-llama") is None
    assert store.get("tiny-random-llama") is store.get("tiny-random-llama")
    for _ in range(2):
        with pytest.raises(ModelError):
            store.get("tiny-random-nothing")
