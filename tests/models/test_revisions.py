"""A model of the Hub by commit, by branch, and by name alone: from a kept download, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kvviz.errors import ModelError
from kvviz.host.limits import Limits
from kvviz.models import load
from kvviz.models.load import split_revision
from kvviz.models.tiny import tiny_model
from kvviz.ui.status import describe

#: Of repositories that exist in these tests alone.
FIRST, SECOND = "0123456789" * 4, "fedcba9876" * 4
NAME = "somebody/small"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two commits of a repository as a download leaves them; ``main`` is the second, ``old`` the first."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    folder = tmp_path / "models--somebody--small"
    for seed, commit in enumerate((FIRST, SECOND)):
        model = tiny_model(dtype=torch.float32, seed=seed)
        model.network.save_pretrained(folder / "snapshots" / commit)
        model.tokenizer.save_pretrained(folder / "snapshots" / commit)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(SECOND)
    (folder / "refs" / "old").write_text(FIRST)
    return folder


def test_a_commit_pins_what_is_loaded_and_the_facts_say_so(kept: Path) -> None:
    first, second = (load(f"{NAME}@{commit}").facts for commit in (FIRST, SECOND))
    assert (first.commit, second.commit) == (FIRST, SECOND)
    assert first.weights_hash != second.weights_hash
    assert first.is_pinned
    assert first.name == f"{NAME}@{FIRST}"
    assert f"commit {FIRST[:8]}, pinned" in describe(first)


@pytest.mark.parametrize(
    ("name", "commit"), [(NAME, SECOND), (f"{NAME}@main", SECOND), (f"{NAME}@old", FIRST)]
)
def test_a_branch_is_not_pinned_and_its_commit_is_told(kept: Path, name: str, commit: str) -> None:
    facts = load(name).facts
    assert facts.commit == commit
    assert not facts.is_pinned
    assert f"commit {commit[:8]}, not pinned" in describe(facts)


def test_a_folder_has_no_commit_whatever_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "mine@home"
    model = tiny_model(dtype=torch.float32)
    model.network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    facts = load(str(folder)).facts
    assert (facts.commit, facts.source, facts.is_pinned) == ("", "folder", False)
    assert "pinned" not in describe(facts)


@pytest.mark.parametrize("given", ["", "-x", "../other", "a..b", "x y", "ü", "?", "a" * 101])
def test_what_no_revision_can_be_called_is_refused_before_anything_is_opened(given: str) -> None:
    with pytest.raises(ModelError) as refusal:
        load(f"{NAME}@{given}")
    assert refusal.value.code == "model_revision"


def test_a_commit_that_is_not_there_is_not_replaced_by_another(kept: Path) -> None:
    with pytest.raises(ModelError) as refusal:
        load(f"{NAME}@{'ab' * 20}")
    assert refusal.value.code in ("no_network", "model_not_found")


def test_an_operator_may_list_a_pinned_model_and_no_other_commit_of_it_is_offered() -> None:
    pinned = f"{NAME}@{FIRST}"
    limits = Limits.from_environment(
        {"KVVIZ_PUBLIC": "1", "KVVIZ_MODELS": f"{pinned}, tiny-random-llama"}, pinned
    )
    limits.check_model(pinned)
    for other in (NAME, f"{NAME}@{SECOND}", f"{NAME}@main"):
        with pytest.raises(Exception, match="does not offer"):
            limits.check_model(other)


def test_a_name_without_a_revision_is_main() -> None:
    assert split_revision(NAME) == (NAME, "main")
    assert split_revision(f"{NAME}@{FIRST}") == (NAME, FIRST)
