"""The formula against the real cache's ledger, byte for byte, and against numbers worked out elsewhere."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.calculator import ModelShape, full_bytes, kv_bytes, model, models, side_terms
from kvviz.calculator.shapes import stored
from kvviz.config import CacheConfig, Middle, Prefill
from kvviz.engine import calibrate
from kvviz.presets import preset, preset_names
from kvviz.quant_config import QuantConfig
from tests.cache.cases import Case, cases, feed


def shape_of(facts, name: str = "tiny") -> ModelShape:
    return ModelShape(
        name, facts.n_layers, facts.n_heads, facts.n_kv_heads, facts.head_dim, facts.context_tokens, 0
    )


def assert_agrees(session, facts, cache: CacheConfig, tokens: int) -> None:
    counted = session.memory()
    computed = kv_bytes(shape_of(facts), cache, tokens, facts.dtype_bytes)
    assert computed.used == counted.used
    assert computed.total_bytes == counted.used_bytes
    assert computed.effective_bits == counted.effective_bits
    assert computed.cache_bits == counted.cache_bits


@given(
    case=st.one_of(
        cases(Middle.KEEP), cases(Middle.EVICT), cases(Middle.QUANTIZE, overrides=True),
        cases(Middle.QUANTIZE), cases(Middle.QUANTIZE, prefill=Prefill.EXACT),
    ),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)  # fmt: skip
@settings(max_examples=150)
def test_the_formula_is_the_ledger(tiny, case: Case, dtype: torch.dtype) -> None:
    model = tiny(case.family, n_kv_heads=case.kv_heads, dtype=dtype)
    session = model.new_session(case.config)
    feed(model, session, case.ids, [len(case.ids)])
    assert_agrees(session, model.facts, case.config, len(case.ids))


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("tokens", [3, 133, 400])
def test_presets_take_what_the_ledger_counts(tiny, name, tokens):
    model = tiny(head_dim=64, dtype=torch.float32)
    session = model.new_session(preset(name))
    model.forward(list(range(200)) * 2 if tokens > 200 else list(range(tokens)), session, last_only=True)
    assert_agrees(session, model.facts, preset(name), tokens)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("int4:channel:g8:minmax+static", "nuq4:token:g16"),
        ("int4:head:absmax+static+guard2", "int8:token:g16:minmax+static+guard30"),
        ("nuq3:tensor+outliers2", "nuq2:channel:g4+hadamard:m32".replace("+hadamard:m32", ":m32+hadamard")),
    ],
)
def test_calibrated_quantizers_take_what_the_ledger_counts(tiny, key, value):
    model = tiny()
    cache = CacheConfig(2, 4, Middle.QUANTIZE, 8, QuantConfig.parse(key), QuantConfig.parse(value))
    ids = torch.randint(0, 256, (45,), generator=torch.Generator().manual_seed(3)).tolist()
    session = model.new_session(cache, calibration=calibrate(model, ids, cache))
    model.forward(ids, session, last_only=True)
    assert_agrees(session, model.facts, cache, len(ids))


@pytest.mark.real
def test_the_default_model_takes_what_is_computed(default_model):
    facts, cache = default_model.facts, preset("full-stack")
    session = default_model.new_session(cache)
    ids = (default_model.encode("A cache is counted, not guessed. ", False) * 60)[:400]
    default_model.forward(ids, session, last_only=True)
    assert_agrees(session, facts, cache, 400)
    known = model("SmolLM2-135M")
    for name in ("n_layers", "n_heads", "n_kv_heads", "head_dim", "context_tokens"):
        assert getattr(known, name) == getattr(facts, name)
    assert kv_bytes(known, cache, 400, facts.dtype_bytes).used == session.memory().used
    assert known.parameters * facts.dtype_bytes == facts.weights_bytes


@pytest.mark.parametrize(
    ("spec", "per_token"),
    [
        ("int8:token:g64:minmax", 12_240),
        ("int4:token:g64:minmax", 6_480),
        ("int4:token:g32:minmax", 7_200),
        ("int2:token:g32:minmax", 4_320),
        ("none", 23_040),
    ],
)
def test_bytes_a_token_on_the_default_model(spec, per_token):
    """Both sides, 30 layers, 3 KV heads, head_dim 64."""
    sealed = dict(side_terms(QuantConfig.parse(spec), 3, 64, 64, 64, 2))
    total = 0
    for factors in sealed.values():
        product = 1
        for factor in factors:
            product *= factor
        total += product
    assert 2 * 30 * total == 64 * per_token


def test_full_precision_numbers_worked_out_elsewhere():
    assert full_bytes(model("Llama-2-7B"), 4096) == 2 << 30
    assert full_bytes(model("Llama-2-7B"), 4196) / 2**30 == pytest.approx(2.05, abs=0.005)
    assert full_bytes(model("Llama-3-8B"), 8192) == 1 << 30  # 8 KV heads, not 32
    windowed = model("gpt-oss-20b")
    assert full_bytes(windowed, 8192) == 195 << 20
    everywhere = ModelShape("all", 24, 64, 8, 64, 1, 1)
    assert full_bytes(everywhere, 8192) == 384 << 20
    assert pytest.approx(6.09, abs=0.005) == 32 * 195 / 1024


def test_a_quantizer_saves_nothing_where_the_window_fits_into_the_residual():
    """Layers with a window of 128 tokens hold no middle when the last 128 tokens stay exact."""
    shape = model("gpt-oss-20b")
    cache = CacheConfig(4, 128, Middle.QUANTIZE, 64, *[QuantConfig.parse("int4:token:g64:minmax")] * 2)
    windowed = ModelShape("w", 12, 64, 8, 64, 1, 1, window_tokens=128)
    assert kv_bytes(windowed, cache, 8192).total_bytes == full_bytes(windowed, 8192) == 3 << 20
    full_layers = ModelShape("f", 12, 64, 8, 64, 1, 1)
    assert (
        kv_bytes(shape, cache, 8192).total_bytes
        == kv_bytes(full_layers, cache, 8192).total_bytes + (3 << 20)
    )  # fmt: skip


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 300])
def test_pages_pad_what_is_exact(tokens):
    shape, cache = model("Llama-3-8B"), CacheConfig()
    paged, plain = (kv_bytes(shape, cache, tokens, page_size=page) for page in (16, 1))
    assert paged.used == plain.used
    assert paged.total_bytes == kv_bytes(shape, cache, -(-tokens // 16) * 16).total_bytes


def causal_parameters(entry: dict, layers: int) -> int:
    """Counted by the library that defines these models, on a device without memory."""
    import transformers

    names = {
        "llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
        "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config,
        "gemma2": transformers.Gemma2Config, "gpt_oss": transformers.GptOssConfig,
    }  # fmt: skip
    more = {"num_local_experts": 32} if entry["family"] == "gpt_oss" else {}
    config = names[entry["family"]](
        hidden_size=entry["hidden_size"], intermediate_size=entry["intermediate_size"],
        num_hidden_layers=layers, num_attention_heads=entry["n_heads"],
        num_key_value_heads=entry["n_kv_heads"], head_dim=entry["head_dim"],
        vocab_size=entry["vocab_size"], tie_word_embeddings=entry["tied"], **more,
    )  # fmt: skip
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(config)
    return sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize("entry", stored()["models"], ids=lambda e: e["name"])
def test_parameters_follow_from_the_published_configuration(entry):
    one, two = causal_parameters(entry, 1), causal_parameters(entry, 2)
    assert entry["parameters"] == one + (entry["n_layers"] - 1) * (two - one)


def test_mixed_checkpoint_of_gpt_oss():
    """Experts in 4-bit codes with one 8-bit scale for 32 of them, all else in 16 bits."""
    shape = model("gpt-oss-20b")
    experts = 24 * 32 * 3 * 2880 * 2880
    assert shape.weights_bytes(None) == (shape.parameters - experts) * 2 + experts * (4 * 32 + 8) // (8 * 32)
    assert shape.weights_bytes(16) == 2 * shape.parameters


def test_window_layers_are_where_the_models_have_them():
    assert [model("gpt-oss-20b").window_of(i) for i in range(4)] == [128, None, 128, None]
    assert {model("Mistral-7B-v0.1").window_of(i) for i in range(32)} == {4096}
    assert all(shape.window_of(0) is None for shape in models() if shape.window_tokens is None)
