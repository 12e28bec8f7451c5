"""Named endpoints for programs: ``/run``, ``/score``, ``/presets``; all else of the page is private.

Knows the engine's contracts and plain values; knows no component. A call waits in the same line as the page's
runs, within the same limits, and ends when its client goes away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr
from gradio.events import api

from kvviz.catalogue import text
from kvviz.config import CacheConfig, RunConfig, SamplingConfig
from kvviz.engine.corpus import named_text, text_of
from kvviz.errors import ConfigError, KvvizError
from kvviz.events import RunStarted
from kvviz.plain import finite, run_dict
from kvviz.record import RunRecord
from kvviz.ui.atlas import session_of
from kvviz.ui.context import AppContext
from kvviz.ui.parts import MODEL_QUEUE, RUNS_AT_ONCE

Settings = dict[str, Any]
_KINDS = {str: "api_text", int: "api_whole", float: "api_number"}


def build_api(context: AppContext) -> None:
    """Declare the endpoints on the page that is being built."""
    calls = Calls(context)
    common: dict[str, Any] = {"concurrency_id": MODEL_QUEUE, "concurrency_limit": RUNS_AT_ONCE}
    api(calls.run_call(), api_name="run", **common)
    api(calls.score_call(), api_name="score", **common)
    api(calls.presets_call(), api_name="presets", queue=False)


@contextmanager
def _told() -> Iterator[None]:
    """A refusal reaches the caller as its sentence."""
    try:
        yield
    except KvvizError as error:
        raise gr.Error(str(error), print_exception=False) from error


def _check_types(kind: type, **values: object) -> None:
    """Raises:
    ConfigError: names the first value of another kind; whole numbers are numbers, true and false are not.
    """
    kinds = (int, float) if kind is float else (kind,)
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ConfigError(_KINDS[kind], name=name, value=str(value)[:80])


class Calls:
    """Bound to one application's context. Gradio reads names and types from plain functions, hence these."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    def run_call(self) -> Callable[..., Settings]:
        """What answers ``/run``."""

        def run(
            prompt: str,
            preset: str = "full-stack",
            max_new_tokens: int = 64,
            use_chat_template: bool = True,
            temperature: float = 0.0,
            top_p: float = 1.0,
            seed: int = 0,
            cache: Settings | None = None,
            model: str = "",
            request: gr.Request = None,  # type: ignore[assignment]
        ) -> Settings:
            """Generate through one cache; everything that was measured. ``cache`` overrides ``preset``."""
            with _told():
                _check_types(str, prompt=prompt, preset=preset, model=model)
                _check_types(int, max_new_tokens=max_new_tokens, seed=seed)
                _check_types(float, temperature=temperature, top_p=top_p)
                sampling = SamplingConfig(temperature, top_p, seed)
                settings = self._cache(preset, cache)
                label = preset if cache is None else ""
                config = RunConfig(prompt, settings, label, bool(use_chat_template), max_new_tokens, sampling)
                return self._run(model, config, session_of(request))

        return run

    def score_call(self) -> Callable[..., Settings]:
        """What answers ``/score``."""

        def score(
            text: str = "",
            corpus: str = "pydoc-topics",
            start: int = 0,
            length: int = 1024,
            skip: int = 256,
            preset: str = "full-stack",
            cache: Settings | None = None,
            model: str = "",
            request: gr.Request = None,  # type: ignore[assignment]
        ) -> Settings:
            """Perplexity, KL and top-1 agreement on ``length`` tokens of ``text``, or else of ``corpus``."""
            with _told():
                _check_types(str, text=text, corpus=corpus, preset=preset, model=model)
                _check_types(int, start=start, length=length, skip=skip)
                self._context.hosting.limits.check_prompt(text)
                found = text_of("own", text) if text else named_text(corpus)
                place = {"start": start, "length": length, "skip": skip}
                score = self._score(model, found.text, place, self._cache(preset, cache), session_of(request))
                return score | place | {"corpus": found.name, "corpus_sha256": found.sha256}

        return score

    def presets_call(self) -> Callable[..., list[Settings]]:
        """What answers ``/presets``."""

        def presets() -> list[Settings]:
            """Named caches with their settings: name, label, note, cache."""
            offered = self._context.presets
            return [
                {
                    "name": name, "label": offered.label(name), "note": text(f"preset.{name}.note"),
                    "cache": offered.cache(name).to_dict(),
                }
                for name in offered.names
            ]  # fmt: skip

        return presets

    def _cache(self, preset: str, cache: Settings | None) -> CacheConfig:
        if cache is None:
            return self._context.presets.cache(preset)
        try:
            return CacheConfig.from_dict(cache)
        except (
            TypeError,
            ValueError,
            KeyError,
            AttributeError,
        ) as error:  # a value of a kind that nobody meant
            raise ConfigError("api_cache") from error

    def _model(self, name: str) -> Any:
        return self._context.loader.get(name.strip() or self._context.default_model)

    def _run(self, model: str, config: RunConfig, session: str) -> Settings:
        self._context.hosting.limits.check_request([config])
        record = RunRecord(config=config.to_dict())
        loaded = self._model(model)
        begin = time.perf_counter()
        waited_ms = 0.0
        with self._context.api_calls.held(session) as stop:
            try:
                for event in self._context.compare(loaded, [config], stop=stop, capture_attention=False):
                    record.apply(event)
                    if isinstance(event, RunStarted):
                        waited_ms = 1000 * (time.perf_counter() - begin)
            except KvvizError as error:
                if not record.generated_ids:
                    raise
                record.message = str(error)  # the time was up: what was found until then is kept
        if record.status == "failed":
            raise gr.Error(record.message, print_exception=False)
        if record.status == "empty":
            raise gr.Error(text("ui.phase.never_began"), print_exception=False)
        plain: Settings = finite(run_dict(record) | {"waited_ms": waited_ms})
        return plain

    def _score(
        self, model: str, content: str, place: dict[str, int], cache: CacheConfig, session: str
    ) -> Settings:
        assert self._context.score is not None
        self._context.hosting.limits.check_count("context_tokens", place["length"])
        loaded = self._model(model)
        ids = loaded.encode(content, False)
        stop_at = place["start"] + place["length"]
        if place["start"] < 0 or place["length"] < 1 or stop_at > len(ids):
            raise ConfigError("text_slice", start=place["start"], stop=stop_at, tokens=len(ids))
        with self._context.api_calls.held(session) as stop:
            result = self._context.score(
                loaded, ids[place["start"] : stop_at], cache, skip=place["skip"], stop=stop
            )
        plain: Settings = finite(result.to_dict())
        return plain
