"""Prompts to ids, and the default model's own facts."""

from __future__ import annotations

import pytest

from kvviz.config import CacheConfig, RunConfig
from kvviz.engine import run
from kvviz.errors import ConfigError
from kvviz.record import RunRecord


class _AddsBos:
    """Wraps a tokenizer so that it puts a beginning-of-sequence token in front, as Gemma's does."""

    def __init__(self, tokenizer, template):
        self._tokenizer, self.chat_template = tokenizer, template
        self.bos_token_id = tokenizer.bos_token_id

    def __call__(self, text, add_special_tokens=True):
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return {"input_ids": [self.bos_token_id, *ids] if add_special_tokens else ids}

    def apply_chat_template(self, messages, **_):
        return self.chat_template + messages[0]["content"]


@pytest.fixture
def with_bos(tiny, monkeypatch):
    def make(template):
        model = tiny()
        monkeypatch.setattr(model, "tokenizer", _AddsBos(model.tokenizer, template))
        return model

    return make


def test_one_bos_raw_chat_and_pasted(with_bos):
    model = with_bos("<|im_start|>")
    bos = model.tokenizer.bos_token_id
    for ids in (
        model.encode("hi", False),
        model.encode("hi", True),
        model.encode("<|im_start|>hi", False),
    ):
        assert ids[0] == bos
        assert ids.count(bos) == 1


def test_bos_is_added_where_a_template_forgets_it(with_bos):
    model = with_bos("user: ")
    assert model.encode("hi", True)[0] == model.tokenizer.bos_token_id


@pytest.mark.parametrize(("prompt", "chat"), [("", False), ("", True), ("  \n", True)])
def test_nothing_to_read_is_refused(tiny, prompt, chat):
    with pytest.raises(ConfigError) as refusal:
        tiny().encode(prompt, chat)
    assert refusal.value.code == "prompt_empty"


def test_no_template_is_refused(tiny, monkeypatch):
    model = tiny()
    monkeypatch.setattr(model.tokenizer, "chat_template", None)
    with pytest.raises(ConfigError) as refusal:
        model.encode("hi", True)
    assert refusal.value.code == "no_chat_template"


def test_head_dim_and_bytes_are_the_real_ones(tiny):
    facts = tiny("qwen3", hidden=32, n_heads=4, n_kv_heads=2, head_dim=24).facts
    assert (facts.head_dim, facts.n_kv_heads) == (24, 2)
    assert facts.kv_bytes_per_token(2) == 2 * facts.n_layers * 2 * 24 * 2


@pytest.mark.real
def test_default_model_facts(default_model):
    facts = default_model.facts
    assert (facts.n_layers, facts.n_heads, facts.n_kv_heads, facts.head_dim) == (30, 9, 3, 64)
    assert (facts.vocab_size, facts.context_tokens) == (49152, 8192)
    assert facts.weights_bytes == 538_060_032
    assert facts.weights_hash == "b179c9523d0e6a0f"
    assert facts.kv_bytes_per_token(4) == 46080
    assert default_model.eos_ids == {2}
    ids = default_model.encode("What is the capital of France?", True)
    assert (ids[0], ids[:2].count(1)) == (1, 1)


@pytest.mark.real
def test_capital_of_france(default_model):
    record = RunRecord()
    request = RunConfig("What is the capital of France?", CacheConfig(), max_new_tokens=64)
    for event in run(default_model, request):
        record.apply(event)
    assert record.text == "The capital of France is Paris."
    assert record.generated_ids[-1] == 2
    assert record.status == "eos"
