"""What one operator allows: frozen numbers, read once from environment variables.

Knows requests by their size; knows no model, no page and no machine. ``None`` is no limit. With
``KVVIZ_PUBLIC=1`` (on a Space without it) every limit has the value of :meth:`Limits.public` unless its own
variable says otherwise.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvviz.config import RunConfig
from kvviz.errors import ConfigError

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
_MIB = 1 << 20
_SITE = re.compile(r"https?://[A-Za-z0-9.*-]+(:[0-9]+)?")
#: In the order of the README's table. Those that are no plain counts are read apart.
VARIABLES: Mapping[str, str] = {
    "max_prompt_chars": "KVVIZ_MAX_PROMPT_CHARS",
    "max_prompt_tokens": "KVVIZ_MAX_PROMPT_TOKENS",
    "max_new_tokens": "KVVIZ_MAX_NEW_TOKENS",
    "max_context_tokens": "KVVIZ_MAX_CONTEXT_TOKENS",
    "max_configurations": "KVVIZ_MAX_CONFIGURATIONS",
    "max_lab_tokens": "KVVIZ_MAX_LAB_TOKENS",
    "max_run_seconds": "KVVIZ_MAX_RUN_SECONDS",
    "max_lab_seconds": "KVVIZ_MAX_LAB_SECONDS",
    "max_running": "KVVIZ_MAX_RUNNING",
    "max_waiting": "KVVIZ_MAX_WAITING",
}
_REFUSALS: Mapping[str, str] = {
    "prompt_chars": "host_prompt_chars",
    "prompt_tokens": "host_prompt_tokens",
    "new_tokens": "host_new_tokens",
    "context_tokens": "host_context_tokens",
    "configurations": "host_configurations",
    "lab_tokens": "host_lab_tokens",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """``models``: names that may be asked for, None for any. ``max_lab_tokens``: of one experiment in all.
    ``max_running``: runs, experiments and recomputations at the same time; ``max_waiting`` more may wait.
    ``keep_free_bytes``: what no request may take, for the working memory of a step. ``frame_ancestors``:
    sites that may show the page in a frame."""

    is_public: bool = False
    models: tuple[str, ...] | None = None
    max_prompt_chars: int | None = None
    max_prompt_tokens: int | None = None
    max_new_tokens: int | None = None
    max_context_tokens: int | None = None
    max_configurations: int | None = None
    max_lab_tokens: int | None = None
    max_run_seconds: int | None = None
    max_lab_seconds: int | None = None
    max_running: int = 2
    max_waiting: int = 64
    keep_free_bytes: int = 512 * _MIB
    log_json: bool = False
    frame_ancestors: tuple[str, ...] = ("https://huggingface.co", "https://*.hf.space")

    @classmethod
    def public(cls, model: str) -> Limits:
        """What a small shared machine bears: two CPU cores, 16 GB, the default model."""
        return cls(
            is_public=True,
            models=(model,),
            max_prompt_chars=24_000,
            max_prompt_tokens=4096,
            max_new_tokens=256,
            max_context_tokens=4352,
            max_configurations=4,
            max_lab_tokens=100_000,
            max_run_seconds=300,
            max_lab_seconds=900,
            log_json=True,
        )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], model: str) -> Limits:
        """The limits that ``environment`` asks for; ``model`` is the one that the page opens with.

        Raises:
            ConfigError: a variable that cannot be read, or a list of models without ``model``.
        """
        if environment.get("KVVIZ_PUBLIC", "").strip():
            is_public = _flag(environment, "KVVIZ_PUBLIC")
        else:
            is_public = bool(environment.get("SPACE_ID"))  # a Space is open to everybody
        limits = cls.public(model) if is_public else cls()
        changes: dict[str, object] = {
            name: _count(variable, environment[variable], minimum=name != "max_waiting")
            for name, variable in VARIABLES.items()
            if environment.get(variable, "").strip()
        }
        if listed := environment.get("KVVIZ_MODELS", "").strip():
            models = tuple(filter(None, (name.strip() for name in listed.split(","))))
            if model not in models:
                raise ConfigError("host_model_unlisted", model=model, models=", ".join(models))
            changes["models"] = models
        if kept := environment.get("KVVIZ_KEEP_FREE_MIB", "").strip():
            changes["keep_free_bytes"] = _count("KVVIZ_KEEP_FREE_MIB", kept, minimum=0) * _MIB
        if environment.get("KVVIZ_LOG_JSON", "").strip():
            changes["log_json"] = _flag(environment, "KVVIZ_LOG_JSON")
        if (framers := environment.get("KVVIZ_FRAME_ANCESTORS")) is not None:
            changes["frame_ancestors"] = _sites(framers)
        return dataclasses.replace(limits, **changes)  # type: ignore[arg-type]

    def check_model(self, name: str) -> None:
        """Raises:
        ConfigError: this server does not offer the model.
        """
        if self.models is not None and name not in self.models:
            raise ConfigError("host_model", model=name, models=", ".join(self.models))

    def check_prompt(self, prompt: str) -> None:
        """Raises:
        ConfigError: more characters than one prompt may have.
        """
        self.check_count("prompt_chars", len(prompt))

    def check_request(self, configs: Sequence[RunConfig]) -> None:
        """What can be refused without a model.

        Raises:
            ConfigError: the first limit that is exceeded, with its value and the one that was asked for.
        """
        self.check_count("configurations", len(configs))
        for config in configs:
            self.check_prompt(config.prompt)
            self.check_count("new_tokens", config.max_new_tokens)

    def check_tokens(self, prompt_tokens: int, new_tokens: int) -> None:
        """What needs a tokenizer.

        Raises:
            ConfigError: the prompt alone, or prompt and new tokens together, are too long.
        """
        self.check_count("prompt_tokens", prompt_tokens)
        self.check_count("new_tokens", new_tokens)
        self.check_count("context_tokens", prompt_tokens + new_tokens)

    def check_count(self, what: str, asked: int) -> None:
        """``what`` is a field's name without ``max_``.

        Raises:
            ConfigError: ``asked`` is above it.
        """
        most = getattr(self, f"max_{what}")
        if most is not None and asked > most:
            raise ConfigError(_REFUSALS[what], asked=f"{asked:,}", most=f"{most:,}")


def _flag(environment: Mapping[str, str], variable: str) -> bool:
    value = environment.get(variable, "").strip().lower()
    if value not in (*_TRUE, *_FALSE):
        raise ConfigError("host_flag", variable=variable, value=value)
    return value in _TRUE


def _sites(value: str) -> tuple[str, ...]:
    """Origins for a header: nothing that could end it or open another directive."""
    sites = tuple(value.split())
    for site in sites:
        if not _SITE.fullmatch(site):
            raise ConfigError("host_site", variable="KVVIZ_FRAME_ANCESTORS", value=site)
    return sites


def _count(variable: str, value: str, *, minimum: int) -> int:
    if not value.strip().isdecimal() or int(value) < minimum:
        raise ConfigError("host_variable", variable=variable, value=value, minimum=int(minimum))
    return int(value)
