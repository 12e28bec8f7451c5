"""The picture of the README, enforced: who may import whom, where libraries live, how long a file may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kvviz"
BASE = {
    "config", "quant_config", "events", "record", "errors", "units", "catalogue", "experiment", "schemes",
    "comparison", "comparison_request", "comparison_words", "offload_config",
    "array_text", "link_values", "timeline", "permalink", "plain", "record_text", "report",
}  # fmt: skip
#: room -> what it may import of kvviz, itself and BASE apart
ALLOWED = {
    "quant": set(),
    "attention": set(),
    "offload": set(),
    "cache": {"quant", "attention", "offload"},
    "models": {"cache", "quant", "attention"},
    "engine": {"models", "cache", "quant", "attention", "offload"},
    "lab": {"engine", "models", "cache", "quant", "attention", "offload"},
    "calculator": set(),
    "host": {"calculator"},
    "lessons": {"calculator"},
    "figures": {"calculator"},
    "ui": {"engine", "figures", "calculator", "host", "lessons"},
    "cli": {"calculator", "lessons"},
}
HOMES = {
    "gradio": {"ui"},
    "plotly": {"figures"},
    "transformers": {"models"},
    "torch": {"quant", "attention", "offload", "cache", "models", "engine", "lab"},
}
#: top-level modules that tie rooms together
TIES = {"__main__", "app", "zero_gpu"}
TOP_LEVEL = {
    "app.py", "kvviz", "assets", "tests", "requirements.txt", "README.md", "pyproject.toml", "LICENSE",
}  # fmt: skip
SOURCES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


def imports_of(path: Path) -> set[str]:
    """Full names of everything a file imports, at any depth in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found.add(node.module or "")
            if node.module == "kvviz":
                found |= {f"kvviz.{alias.name}" for alias in node.names}
    return found


def test_there_is_something_to_check():
    assert {room_of(path) for path in SOURCES} >= {
        "quant",
        "attention",
        "cache",
        "models",
        "engine",
        "config",
    }


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    room = room_of(path)
    rooms = {name.split(".")[1] for name in imports_of(path) if name.startswith("kvviz.")} - {room}
    rooms -= {"__version__"}
    if room in TIES:
        return
    if room in ALLOWED:
        assert rooms - BASE <= ALLOWED[room], f"{room} imports {rooms - BASE - ALLOWED[room]}"
    else:
        assert rooms <= BASE, f"{room} imports {rooms - BASE}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_each_library_has_one_home(path):
    room = room_of(path)
    for name in imports_of(path):
        homes = HOMES.get(name.split(".")[0])
        assert homes is None or room in homes, f"{path} imports {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_short_and_say_what_they_are(path):
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 350
    assert not source.strip() or ast.get_docstring(ast.parse(source)), f"{path} has no docstring"


def test_the_composition_root_is_short():
    app = ROOT / "app.py"
    if not app.exists():
        pytest.skip("app.py is not there yet")
    assert len(app.read_text(encoding="utf-8").splitlines()) <= 40


def tracked() -> list[Path]:
    """Files that git knows or would take, without ignored ones."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_nothing_else_lies_at_the_top():
    names = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in names if not name.startswith(".")} <= TOP_LEVEL


def test_no_text_file_names_a_package_host():
    hosts = ["pypi" + ".org", "files." + "pythonhosted", "--index" + "-url", "--extra-index" + "-url"]
    hosts += ["download." + "pytorch", "registry." + "npmjs", "conda." + "anaconda"]
    for path in tracked():
        try:
            content = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found = [host for host in hosts if host in content]
        assert not found, f"{path} names {found}"


IMPORT_ALL = """
import pkgutil, sys, threading
import torch
def refuse(*args, **kwargs):
    raise AssertionError("CUDA was touched")
torch.cuda.init = torch.cuda._lazy_init = torch.cuda.is_available = refuse
import transformers
def built(*args, **kwargs):
    raise AssertionError("a model was built")
transformers.PreTrainedModel.__init__ = built
threads = threading.active_count()
import kvviz
for module in pkgutil.walk_packages(kvviz.__path__, "kvviz."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
assert not torch.cuda.is_initialized()
assert threading.active_count() == threads
print(sum(name.startswith("kvviz") for name in sys.modules))
"""


def test_importing_everything_builds_nothing():
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) >= len([p for p in SOURCES if p.stem != "__main__"])
