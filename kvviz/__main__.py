"""The engine from a terminal: commands that score, run, compare, report, experiment and work out.

With ``--json`` one JSON value is all that stdout gets; progress and errors go to stderr. A refusal is one
sentence and exit code 2; a run that fails on its way still shows its partial text, with exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvviz import presets
from kvviz.catalogue import DEFAULT_LANGUAGE, languages, speaking, text
from kvviz.cli import bench as bench_words
from kvviz.cli import calculator
from kvviz.cli import compare as compare_words
from kvviz.cli import lab as lab_words
from kvviz.cli import lessons as lesson_words
from kvviz.cli import report as report_files
from kvviz.cli.arguments import cache_of, parser
from kvviz.cli.output import Terminal, run_table, score_table, table
from kvviz.comparison import Comparison, ScoreProgress
from kvviz.comparison_request import PROMPT_TEXT
from kvviz.config import CacheConfig, RunConfig, SamplingConfig
from kvviz.errors import ConfigError, KvvizError
from kvviz.experiment import LabResult
from kvviz.plain import run_dict
from kvviz.record import RunRecord

_REFUSED, _FAILED, _INTERRUPTED = 2, 1, 130
_PROGRESS_STEP = 1024


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments ask, in the language of ``KVVIZ_LANG``; returns the exit code."""
    wanted = os.environ.get("KVVIZ_LANG", "").lower()[:2]
    with speaking(wanted if wanted in languages() else DEFAULT_LANGUAGE):
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    terminal = Terminal.current()
    _quiet_libraries()
    with contextlib.redirect_stdout(sys.stderr):  # whatever a library prints is not the result
        from kvviz.engine import known_models

    arguments = parser(known_models()[0].name).parse_args(argv)
    commands = {
        "score": _score,
        "run": _run,
        "compare": _compare,
        "lab": _lab,
        "lessons": _lessons,
        "bench": _bench,
        "calc": _calc,
        "report": _report,
        "presets": _presets,
    }
    with contextlib.redirect_stdout(sys.stderr):
        try:
            return commands[arguments.command](arguments, terminal)
        except KvvizError as error:
            terminal.tell(str(error))
            return _REFUSED
        except KeyboardInterrupt:
            return _INTERRUPTED


def _quiet_libraries() -> None:
    """Read by the libraries when they are first imported; a user's own setting stays."""
    for name, value in (
        ("HF_HUB_DISABLE_PROGRESS_BARS", "1"),
        ("TQDM_DISABLE", "1"),
        ("TRANSFORMERS_VERBOSITY", "error"),
        ("KINETO_LOG_LEVEL", "5"),
    ):
        os.environ.setdefault(name, value)


def _score(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from kvviz import engine

    cache = cache_of(arguments, presets.preset)
    corpus = engine.load_text(arguments.text)
    model = engine.load_model(arguments.model, progress=lambda sentence, _: terminal.tell(sentence))
    _warn(model, cache, terminal)
    ids = _cut(model.encode(corpus.text, False), arguments.start, arguments.length)
    result = engine.score(
        model,
        ids,
        cache,
        skip=arguments.skip,
        chunk_size=arguments.chunk,
        progress=_Steps(terminal),
    )
    place = {"corpus": corpus.name, "corpus_sha256": corpus.sha256}
    place |= {"start": arguments.start, "length": arguments.length, "skip": arguments.skip}
    plain = result.to_dict() | place
    if arguments.json:
        terminal.show_json(plain)
    else:
        terminal.show(score_table(plain))
    return 0


def _warn(model: Any, cache: CacheConfig, terminal: Terminal) -> None:
    """Say what the weights say against the settings, before anything runs."""
    for sentence in model.warnings(cache):
        terminal.tell(sentence)


def _cut(ids: list[int], start: int, length: int) -> list[int]:
    stop = start + length
    if start < 0 or length < 1 or stop > len(ids):
        raise ConfigError("text_slice", start=start, stop=stop, tokens=len(ids))
    return ids[start:stop]


class _Steps:
    """Tells how far a reading is, every thousand tokens or so."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._told = 0

    def __call__(self, done: int, total: int) -> None:
        if done - self._told >= _PROGRESS_STEP or done == total:
            self._told = done
            self._terminal.tell(text("cli.progress", done=done, total=total))


def _run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from kvviz import engine

    config = RunConfig(
        prompt=arguments.prompt if arguments.prompt_file is None else _read(arguments.prompt_file),
        cache=cache_of(arguments, presets.preset),
        label=presets.preset_label(arguments.preset) if arguments.preset else "",
        use_chat_template=not arguments.no_chat,
        max_new_tokens=arguments.max_new_tokens,
        sampling=SamplingConfig(arguments.temperature, arguments.top_p, arguments.seed),
        chunk_size=arguments.chunk,
    )
    model = engine.load_model(arguments.model, progress=lambda sentence, _: terminal.tell(sentence))
    _warn(model, config.cache, terminal)
    record = RunRecord()
    for event in engine.run(model, config, capture_attention=False):
        record.apply(event)
    plain = run_dict(record)
    if arguments.json:
        terminal.show_json(plain)
    else:
        terminal.show(run_table(plain))
    if record.status == "failed":
        terminal.tell(record.message)
        return _FAILED
    return 0


def _compare(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from kvviz import engine

    prompt = arguments.prompt if arguments.prompt_file is None else _read(arguments.prompt_file)
    request = compare_words.read_request(arguments, prompt, presets.preset, presets.preset_label)
    corpus = None
    if request.text is not None and request.text.name not in (*engine.NAMED_TEXTS, PROMPT_TEXT):
        corpus = engine.load_text(request.text.name)
    model = engine.load_model(arguments.model, progress=lambda sentence, _: terminal.tell(sentence))
    steps, result = _Steps(terminal), None
    for event in engine.comparing(model, request, corpus=corpus, capture_attention=False):
        if isinstance(event, ScoreProgress) and event.done:
            steps(event.done, event.total)
        elif isinstance(event, Comparison):
            result = event
    assert result is not None
    if arguments.json:
        terminal.show_json(result.to_dict())
    else:
        terminal.show(compare_words.comparison_words(result))
    failed = [entry.generation.message for entry in result.entries if entry.generation.status == "failed"]
    for message in dict.fromkeys(failed):
        terminal.tell(message)
    return _FAILED if failed else 0


def _read(path: str) -> str:
    """A prompt; the line end that closes a text file is not part of it, as in the page."""
    try:
        return Path(path).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError("prompt_file", path=path, reason=reason) from error


def _lab(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from kvviz import lab

    offered = {info.name: info for info in lab.experiments()}
    if arguments.experiment is None:
        every = list(offered.values())
        if arguments.json:
            terminal.show_json(lab_words.listing(every))
        else:
            terminal.show(lab_words.listing_words(every))
        return 0
    if arguments.experiment not in offered:
        raise ConfigError("experiment_unknown", name=arguments.experiment, known=", ".join(offered))
    given = lab_words.read_settings(offered[arguments.experiment], arguments.set)
    result = _performed(arguments, terminal, arguments.experiment, given)
    if arguments.json:
        terminal.show_json(result.to_dict())
    else:
        terminal.show(lab_words.result_words(result))
    return 0


def _performed(
    arguments: argparse.Namespace, terminal: Terminal, name: str, given: Mapping[str, Any]
) -> LabResult:
    """One experiment, its tables written where ``--csv`` says."""
    from kvviz import engine, lab

    model = engine.load_model(arguments.model, progress=lambda sentence, _: terminal.tell(sentence))
    result = lab_words.follow(lab.perform(model, name, given), terminal)
    if arguments.csv is not None:
        lab_words.write_csv(result, arguments.csv)
    return result


def _lessons(arguments: argparse.Namespace, terminal: Terminal) -> int:
    if arguments.action != "record":
        if arguments.json:
            terminal.show_json(lesson_words.listing())
        else:
            terminal.show(lesson_words.listing_words())
        return 0
    chosen = lesson_words.wanted(arguments.tasks)
    from kvviz import engine, lab

    model = engine.load_model(arguments.model, progress=lambda sentence, _: terminal.tell(sentence))
    written = lesson_words.record(
        chosen,
        lambda task: lab_words.follow(lab.perform(model, task.experiment, task.settings), terminal),
        terminal,
    )
    if arguments.json:
        terminal.show_json(written)
    return 0


def _bench(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from kvviz import lab

    (info,) = (info for info in lab.experiments() if info.name == arguments.bench)
    usual: dict[str, Any] = lab.FULL_SLICE if arguments.bench == "quality" else {}
    given = usual | lab_words.read_settings(info, arguments.set)
    result = _performed(arguments, terminal, arguments.bench, given)
    if arguments.json:
        terminal.show_json(result.to_dict())
    else:
        terminal.show(bench_words.markdown(result))
    return 0


def _calc(arguments: argparse.Namespace, terminal: Terminal) -> int:
    if arguments.list:
        if arguments.json:
            terminal.show_json(calculator.listing())
        else:
            terminal.show(calculator.listing_words())
        return 0
    found = calculator.ask(arguments, cache_of(arguments, presets.preset))
    if arguments.json:
        terminal.show_json(calculator.answer_dict(found, with_claims=arguments.claims))
    else:
        terminal.show(calculator.answer_words(found, with_claims=arguments.claims))
    return 0


def _report(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from kvviz.figures.report_page import report_page

    report = report_files.load(arguments.file)
    for path in filter(None, (arguments.html, arguments.csv)):
        report_files.write(report, path, report_page)
        terminal.tell(path)
    if arguments.json:
        terminal.show_json(report.comparison.to_dict())
    elif not (arguments.html or arguments.csv):
        terminal.show(compare_words.comparison_words(report.comparison))
    return 0


def _presets(arguments: argparse.Namespace, terminal: Terminal) -> int:
    names = presets.preset_names()
    if arguments.json:
        terminal.show_json(
            [
                {
                    "name": name,
                    "label": presets.preset_label(name),
                    "note": presets.preset_note(name),
                    "config": presets.preset(name).to_dict(),
                }
                for name in names
            ]
        )
    else:
        terminal.show(table([(name, presets.preset_note(name)) for name in names]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
