"""Flags of the terminal, and the settings they stand for. Knows no engine, no model and no preset."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from kvviz.catalogue import text
from kvviz.config import PROMPT_CHUNK_TOKENS, CacheConfig

#: flag -> field of CacheConfig
CACHE_FLAGS = {
    "sink": "sink_size",
    "window": "window_size",
    "middle": "middle",
    "block": "block_size",
    "key": "key",
    "value": "value",
    "position": "position",
    "offload": "offload",
    "offload_read": "offload_read",
    "prefill": "prefill",
}
#: experiments that print a table of the README
BENCHES = ("quality", "speed")
LESSON_ACTIONS = ("list", "record")
_WHOLE_NUMBERS = ("sink", "window", "block")


def parser(default_model: str) -> argparse.ArgumentParser:
    """Every command with its flags."""
    root = argparse.ArgumentParser(
        prog="python -m kvviz", description=text("cli.description"), allow_abbrev=False
    )
    commands = root.add_subparsers(dest="command", required=True)
    score = _command(commands, "score")
    _flag(score, "text", default="pydoc-topics")
    _flag(score, "start", type=int, default=0)
    _flag(score, "length", type=int, default=2048)
    _flag(score, "skip", type=int, default=512)
    _add_shared(score, default_model)
    run = _command(commands, "run")
    prompt = run.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", help=text("cli.help.prompt"))
    prompt.add_argument("--prompt-file", help=text("cli.help.prompt_file"))
    _flag(run, "max_new_tokens", type=int, default=64)
    _flag(run, "temperature", type=float, default=0.0)
    _flag(run, "top_p", type=float, default=1.0)
    _flag(run, "seed", type=int, default=0)
    _flag(run, "no_chat", action="store_true")
    _add_shared(run, default_model)
    _add_compare(_command(commands, "compare"), default_model)
    lab = _command(commands, "lab")
    lab.add_argument("experiment", nargs="?", help=text("cli.help.experiment"))
    _flag(lab, "set", action="append", default=[], metavar="KEY=VALUE")
    _flag(lab, "csv", metavar="FOLDER")
    _flag(lab, "model", default=default_model)
    _flag(lab, "json", action="store_true")
    lessons = _command(commands, "lessons")
    lessons.add_argument("action", choices=LESSON_ACTIONS, nargs="?", help=text("cli.help.lesson_action"))
    lessons.add_argument("tasks", nargs="*", metavar="TASK", help=text("cli.help.lesson_tasks"))
    _flag(lessons, "model", default=default_model)
    _flag(lessons, "json", action="store_true")
    bench = _command(commands, "bench")
    bench.add_argument("bench", choices=BENCHES, help=text("cli.help.bench"))
    _flag(bench, "set", action="append", default=[], metavar="KEY=VALUE")
    _flag(bench, "csv", metavar="FOLDER")
    _flag(bench, "model", default=default_model)
    _flag(bench, "json", action="store_true")
    _add_calc(_command(commands, "calc"))
    report = _command(commands, "report")
    report.add_argument("file", help=text("cli.help.report_file"))
    report.add_argument("--html", metavar="FILE", help=text("cli.help.report_html"))
    report.add_argument("--csv", metavar="FILE", help=text("cli.help.report_csv"))
    _flag(report, "json", action="store_true")
    _flag(_command(commands, "presets"), "json", action="store_true")
    return root


def cache_of(arguments: argparse.Namespace, preset: Callable[[str], CacheConfig]) -> CacheConfig:
    """The preset, if one is named, with every flag that was given in place of its own value.

    Raises:
        ConfigError: an unknown preset, or settings that contradict each other.
    """
    base = CacheConfig() if arguments.preset is None else preset(arguments.preset)
    given = {field: getattr(arguments, flag) for flag, field in CACHE_FLAGS.items()}
    changed = {field: value for field, value in given.items() if value is not None}
    return CacheConfig.from_dict(base.to_dict() | changed)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str
) -> argparse.ArgumentParser:
    sentence = text(f"cli.command.{name}")
    return commands.add_parser(name, help=sentence, description=sentence, allow_abbrev=False)


def _add_compare(compare: argparse.ArgumentParser, default_model: str) -> None:
    _flag(compare, "config", action="append", required=True, metavar="PRESET[,SETTING=VALUE...]")
    prompt = compare.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", help=text("cli.help.prompt"))
    prompt.add_argument("--prompt-file", help=text("cli.help.prompt_file"))
    _flag(compare, "max_new_tokens", type=int, default=64)
    _flag(compare, "temperature", type=float, default=0.0)
    _flag(compare, "top_p", type=float, default=1.0)
    _flag(compare, "seed", type=int, default=0)
    _flag(compare, "no_chat", action="store_true")
    compare.add_argument("--text", default="pydoc-topics", help=text("cli.help.compare_text"))
    _flag(compare, "start", type=int, default=3000)
    _flag(compare, "length", type=int, default=1024)
    _flag(compare, "skip", type=int, default=256)
    _flag(compare, "chunk", type=int, default=PROMPT_CHUNK_TOKENS)
    _flag(compare, "model", default=default_model)
    _flag(compare, "json", action="store_true")


def _add_calc(calc: argparse.ArgumentParser) -> None:
    calc.add_argument("--model", default="Llama-3-8B", help=text("cli.help.calc_model"))
    _flag(calc, "gpu", default="RTX 4090")
    _flag(calc, "gpu_gib", type=float)
    _flag(calc, "reserve_gib", type=float, default=1.0)
    _flag(calc, "weights_bits", type=int)
    _flag(calc, "context", type=int, default=32768)
    _flag(calc, "users", type=int, default=1)
    _flag(calc, "page", type=int, default=16)
    _add_cache(calc)
    for name in ("claims", "list", "json"):
        _flag(calc, name, action="store_true")


def _add_cache(command: argparse.ArgumentParser) -> None:
    _flag(command, "preset")
    for flag in CACHE_FLAGS:
        _flag(command, flag, type=int if flag in _WHOLE_NUMBERS else str)


def _add_shared(command: argparse.ArgumentParser, default_model: str) -> None:
    _add_cache(command)
    _flag(command, "chunk", type=int, default=PROMPT_CHUNK_TOKENS)
    _flag(command, "model", default=default_model)
    _flag(command, "json", action="store_true")


def _flag(command: argparse.ArgumentParser, name: str, **settings: object) -> None:
    add: Callable[..., object] = command.add_argument
    add(f"--{name.replace('_', '-')}", help=text(f"cli.help.{name}"), **settings)
