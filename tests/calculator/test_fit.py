"""What fits: against counting every length, against the arithmetic that is shown, and in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.calculator import (
    ModelShape,
    Question,
    answer,
    claims,
    gpu,
    kv_bytes,
    largest_context,
    lines,
    model,
    models,
    peak_bytes,
    sentences,
)
from kvviz.config import CacheConfig, Middle, Offload
from kvviz.errors import ConfigError
from kvviz.presets import preset, preset_names
from kvviz.quant_config import QuantConfig
from tests.cache.cases import offloads

SPECS = ("none", "int8:token:g16:absmax", "int4:channel:g2:minmax", "int2:tensor:minmax+outliers7")


def value_of(expression: str) -> float:
    """A left side, typed into a calculator."""
    plain = expression.replace("×", "*").replace("−", "-").replace(",", "")
    assert set(plain) <= set("0123456789+-*/(). ")
    return eval(plain)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    window = draw(st.sampled_from([None, 5, 12, 30]))
    shape = ModelShape(
        "s", draw(st.integers(1, 5)), 4, 2, 16, 40, 1000, window, draw(st.integers(0, 3)) if window else 0
    )
    middle = draw(st.sampled_from(Middle))
    key, value = (QuantConfig.parse(draw(st.sampled_from(SPECS))) for _ in range(2))
    quantizes = middle is Middle.QUANTIZE
    cache = CacheConfig(
        draw(st.integers(0, 5)),
        draw(st.integers(1, 9)),
        middle,
        draw(st.sampled_from([2, 4, 8])),
        key,
        value,
        offload=draw(offloads()) if quantizes else Offload.NONE,
    )
    return Question(
        shape,
        cache,
        gpu_gib=draw(st.integers(0, 400_000)) / 2**30,
        reserve_gib=0,
        users=draw(st.integers(1, 3)),
        context_tokens=draw(st.integers(1, 90)),
        page_size=draw(st.sampled_from([1, 4])),
    )


def device(question: Question, tokens: int) -> int:
    kv = kv_bytes(question.shape, question.cache, tokens, question.dtype_bytes, question.page_size)
    return kv.bytes_on("device")


@given(question=questions())
@settings(max_examples=200)
def test_the_peak_is_the_largest_on_the_way(question: Question) -> None:
    tokens = question.context_tokens
    assert peak_bytes(question, tokens) == max(device(question, n) for n in range(1, tokens + 1))


@given(question=questions(), room=st.integers(0, 300_000))
@settings(max_examples=100)
def test_the_largest_context_fits_all_the_way_and_one_more_does_not(question: Question, room: int) -> None:
    found = largest_context(question, room)
    fits = [question.users * device(question, n) <= room for n in range(1, 200)]
    expected = next((n for n, fit in enumerate(fits) if not fit), None)
    if expected is None:
        assert found is None or found >= 199
    else:
        assert found == expected


@given(question=questions())
@settings(max_examples=100)
def test_every_line_is_true_and_users_fit(question: Question) -> None:
    found = answer(question)
    for line in lines(found):
        assert value_of(line.expression) == line.result, line
    assert found.users_that_fit * found.peak_bytes <= max(0, found.room_bytes)
    assert (found.users_that_fit + 1) * found.peak_bytes > found.room_bytes
    assert found.left_bytes == found.room_bytes - question.users * found.peak_bytes
    assert found.fits == (found.users_that_fit >= question.users)


@pytest.mark.parametrize("shape", models(), ids=lambda s: s.name)
def test_all_models_answer_for_all_presets(shape):
    for name in preset_names():
        found = answer(Question(shape, preset(name), gpu_gib=80))
        assert all(value_of(line.expression) == line.result for line in lines(found))
        assert len(sentences(found)) >= 4


def test_an_answer_worked_out_by_hand():
    """Llama-3-8B in 16 bits on 24 GiB: (24 - 1) GiB less 16,060,522,496 bytes, 131,072 bytes a token."""
    found = answer(Question(model("Llama-3-8B"), gpu_gib=24, context_tokens=8192))
    room = 23 * 2**30 - 16_060_522_496
    assert found.room_bytes == room
    assert found.largest_context == room // 131_072
    assert found.users_that_fit == room // 2**30 == 8
    assert found.full_largest_context == found.largest_context
    said = sentences(found)
    assert said[0].startswith("Yes, it fits: for one user at 8,192 tokens each, Llama-3-8B needs 1.00 GiB")
    assert f"{room // 131_072:,} tokens each" in said[1]
    assert "8,192 tokens that the model was made for" in said[1]
    assert "Users that fit at 8,192 tokens each: 8" in said[2]


def test_what_does_not_fit_is_said():
    found = answer(Question(model("Llama-3-70B"), gpu_gib=24))
    assert not found.fits
    assert found.largest_context == found.users_that_fit == 0
    said = sentences(found)
    assert said[0].startswith("No: ")
    assert "none" in said[1]


def test_what_stops_growing_fits_at_any_length():
    for name in ("sinks-window", "full-stack"):
        found = answer(Question(model("Llama-3-8B"), preset(name), gpu_gib=24))
        assert found.largest_context is None
        assert "any length" in sentences(found)[1]
    assert any("lie on host or disk" in sentence for sentence in sentences(found))
    assert found.host_bytes == found.kv.bytes_on("host") > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"context_tokens": 0}, "context is 0"),
        ({"users": 1.5}, "users is 1.5"),
        ({"users": True}, "users is True"),
        ({"page_size": 10**9}, "page size is 1000000000"),
        ({"gpu_gib": float("nan")}, "GPU memory"),
        ({"gpu_gib": float("inf")}, "GPU memory"),
        ({"reserve_gib": "1"}, "kept free"),
        (
            {"cache": preset("int8").from_dict(preset("int8").to_dict() | {"key": "int8:token:g48:absmax"})},
            "48",
        ),
    ],
)
def test_impossible_questions_are_refused_in_a_sentence(change, words):
    question = Question(model("Llama-3-8B"))
    with pytest.raises(ConfigError, match=words):
        replace(question, **change)


def test_unknown_names_list_what_is_known():
    with pytest.raises(ConfigError, match="Llama-2-7B"):
        model("Llama-9")
    with pytest.raises(ConfigError, match="H100"):
        gpu("abacus")
    assert model(" llama-2-7b ").name == "Llama-2-7B"
    assert gpu("t4").gib == 16


def test_claims_are_worked_out():
    found = {claim.key: claim for claim in claims()}
    for claim in found.values():
        for line in claim.lines:
            assert value_of(line.expression) == line.result
    verdicts = {key: claim.verdict for key, claim in found.items()}
    assert verdicts == {
        "four_thousand": "right",
        "eight_thousand": "right",
        "eight_users": "right",
        "forty_heads": "wrong",
        "quarter": "codes_only",
        "eighth": "wrong",
    }
    assert found["four_thousand"].lines[0].result == 2 << 30
    assert found["eight_thousand"].lines[0].result == 4 << 30
    assert found["eight_users"].lines[0].result == 32 << 30
    assert "2.34 GiB a request" in found["forty_heads"].answer
    assert "28.12 %" in found["quarter"].answer
    assert "12.5 % need 2 bits" in found["eighth"].answer
