"""What an operator writes into the environment, and what is refused by it."""

from __future__ import annotations

import dataclasses

import pytest

from kvviz.config import RunConfig
from kvviz.errors import ConfigError
from kvviz.host import Limits
from kvviz.host.limits import VARIABLES
from kvviz.lab import laboratory
from kvviz.lab.bench import Experiment


def read(**environment: str) -> Limits:
    return Limits.from_environment(environment, "small")


def test_nothing_set_is_a_private_page_without_caps() -> None:
    limits = read()
    assert not limits.is_public
    assert limits.models is None
    caps = [getattr(limits, name) for name in VARIABLES if name not in ("max_running", "max_waiting")]
    assert set(caps) == {None}
    assert limits.max_waiting == 64
    limits.check_model("/any/folder")
    limits.check_request([RunConfig("x" * 10**6, max_new_tokens=10**6)] * 9)


def test_public_caps_everything_and_offers_the_model_it_opens_with() -> None:
    limits = read(KVVIZ_PUBLIC="1")
    assert limits.is_public
    assert limits.models == ("small",)
    assert all(getattr(limits, name) is not None for name in VARIABLES)
    assert limits.max_waiting == 64


def test_a_space_is_public_unless_told_otherwise() -> None:
    assert read(SPACE_ID="someone/kvviz").is_public
    assert not read(SPACE_ID="someone/kvviz", KVVIZ_PUBLIC="0").is_public


@pytest.mark.parametrize(("name", "variable"), list(VARIABLES.items()))
@pytest.mark.parametrize("public", ["0", "1"])
def test_each_variable_sets_its_limit(name: str, variable: str, public: str) -> None:
    base = read(KVVIZ_PUBLIC=public)
    assert read(**{"KVVIZ_PUBLIC": public, variable: "7"}) == dataclasses.replace(base, **{name: 7})


def test_models_and_memory_kept_free() -> None:
    limits = read(KVVIZ_MODELS="small, other/model", KVVIZ_KEEP_FREE_MIB="3")
    assert limits.models == ("small", "other/model")
    assert limits.keep_free_bytes == 3 << 20


def test_sites_that_may_frame_the_page() -> None:
    assert "https://huggingface.co" in read().frame_ancestors
    own = read(KVVIZ_FRAME_ANCESTORS="https://school.example https://*.school.example:8443")
    assert own.frame_ancestors == ("https://school.example", "https://*.school.example:8443")
    assert read(KVVIZ_FRAME_ANCESTORS="").frame_ancestors == ()


def test_logs_are_json_in_public_unless_told_otherwise() -> None:
    assert [read(KVVIZ_PUBLIC=public).log_json for public in "01"] == [False, True]
    assert not read(KVVIZ_PUBLIC="1", KVVIZ_LOG_JSON="0").log_json
    assert read(KVVIZ_LOG_JSON="1").log_json


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KVVIZ_FRAME_ANCESTORS", "https://a.example; script-src *"),
        ("KVVIZ_FRAME_ANCESTORS", "javascript:alert(1)"),
        ("KVVIZ_LOG_JSON", "please"),
        ("KVVIZ_PUBLIC", "maybe"),
        ("KVVIZ_MAX_NEW_TOKENS", "many"),
        ("KVVIZ_MAX_NEW_TOKENS", "-1"),
        ("KVVIZ_MAX_NEW_TOKENS", "0"),
        ("KVVIZ_MAX_RUN_SECONDS", "1.5"),
        ("KVVIZ_KEEP_FREE_MIB", "1 GB"),
        ("KVVIZ_MODELS", "others,only"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        read(**{variable: value})


def test_nobody_may_wait_is_a_limit_too() -> None:
    assert read(KVVIZ_MAX_WAITING="0").max_waiting == 0


@pytest.mark.parametrize("experiment", laboratory.EXPERIMENTS, ids=lambda e: e.info.name)
def test_every_experiment_of_the_page_fits_a_public_page_as_it_opens(experiment: Experiment) -> None:
    if experiment.info.group not in ("sink", "quant"):
        pytest.skip("for the terminal alone")
    limits, settings = Limits.public("small"), experiment.info.settings({})
    limits.check_count("context_tokens", experiment.info.held_tokens(settings))
    limits.check_count("lab_tokens", experiment.work(settings))


SMALL = Limits(
    models=("small",), max_prompt_chars=10, max_prompt_tokens=8, max_new_tokens=4, max_context_tokens=11,
    max_configurations=2,
)  # fmt: skip


def test_a_request_at_its_limits_is_let_in() -> None:
    SMALL.check_model("small")
    SMALL.check_request([RunConfig("x" * 10, max_new_tokens=4)] * 2)
    SMALL.check_tokens(8, 3)


@pytest.mark.parametrize("name", ["other", "/etc", "https://example.com/m", "../small", "small "])
def test_only_listed_models_are_offered(name: str) -> None:
    with pytest.raises(ConfigError, match="does not offer"):
        SMALL.check_model(name)


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ([RunConfig("x" * 11, max_new_tokens=1)], ["11 characters", "takes 10"]),
        ([RunConfig("x"), RunConfig("x", max_new_tokens=5)], ["64 new tokens", "makes 4"]),
        ([RunConfig("x", max_new_tokens=1)] * 3, ["3 configurations", "runs 2"]),
    ],
)
def test_a_refusal_says_what_was_asked_and_what_goes(configs: list[RunConfig], said: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        SMALL.check_request(configs)
    assert all(words in str(refused.value) for words in said)


@pytest.mark.parametrize(
    ("prompt", "new", "said"), [(9, 1, "9 tokens"), (8, 4, "12 tokens in all"), (1, 5, "5 new tokens")]
)
def test_tokens_are_counted_apart_and_together(prompt: int, new: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SMALL.check_tokens(prompt, new)


def test_a_hundred_thousand_is_written_with_commas() -> None:
    with pytest.raises(ConfigError, match="100,000 characters"):
        SMALL.check_prompt("x" * 100_000)
