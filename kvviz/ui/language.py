"""Which language is spoken: by every handler of a page, and in every thread that one starts.

Knows functions, contexts and where the page of a language is; knows no component and no gradio.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import wraps
from typing import Any

from kvviz.catalogue import DEFAULT_LANGUAGE, language, languages, speaking, text


def page_path(name: str) -> str:
    """Where the page in this language is, from the application's root: the default language's is the root."""
    return "" if name == DEFAULT_LANGUAGE else name


def switch() -> str:
    """Markup of the links that change the language; assets/js/language.js makes them work."""
    links = []
    for name in languages():
        current = ' aria-current="true"' if name == language() else ""
        tag, label = text("language.tag", name), text("language.name", name)
        links.append(f'<a href="#" data-language="{name}" lang="{tag}" hreflang="{tag}"{current}>{label}</a>')
    return f'<nav aria-label="{text("language.switch")}">{"".join(links)}</nav>'


def bound(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``function`` with the same signature, speaking the language ``name`` whoever calls it.

    A generator speaks it in every step and when it is closed, and leaves its caller's language alone between
    two steps: each of them may come from another thread.
    """
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function!r} is asynchronous, and handlers are not")
    if inspect.isgeneratorfunction(function):
        return _bound_steps(function, name)

    @wraps(function)
    def speak(*given: Any, **named: Any) -> Any:
        with speaking(name):
            return function(*given, **named)

    return speak


def _bound_steps(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(function)
    def speak(*given: Any, **named: Any) -> Iterator[Any]:
        steps = function(*given, **named)
        try:
            while True:
                try:
                    with speaking(name):
                        value = next(steps)
                except StopIteration:
                    return
                yield value
        finally:
            with speaking(name):
                steps.close()

    return speak


def in_thread(work: Callable[..., None], *given: Any, called: str) -> None:
    """Do ``work`` in a thread of its own that speaks the language of whoever starts it."""
    context = copy_context()
    threading.Thread(target=context.run, args=(work, *given), name=called, daemon=True).start()
