"""Random networks of a few thousand numbers with real architectures: for tests, and to try the page at once.

They say nothing sensible; everything about shapes, positions and bytes is real.
"""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    Phi3Config,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from kvviz.errors import ModelError
from kvviz.models.facts import read_facts
from kvviz.models.language_model import LanguageModel

FAMILIES: dict[str, type[PretrainedConfig]] = {
    "llama": LlamaConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "phi3": Phi3Config,
}
_SPECIAL = ("<|im_start|>", "<|im_end|>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_model(
    family: str = "llama",
    *,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    n_layers: int = 2,
    n_heads: int = 4,
    n_kv_heads: int = 2,
    head_dim: int = 16,
    hidden: int = 32,
    context: int = 512,
    **settings: Any,
) -> LanguageModel:
    """A random model of ``family``; ``settings`` go to its configuration.

    Raises:
        ModelError: an unknown family.
    """
    if family not in FAMILIES:
        raise ModelError("tiny_family", family=family, families=", ".join(sorted(FAMILIES)))
    if family == "phi3" and "head_dim" not in settings:
        hidden = n_heads * head_dim  # this family derives head_dim from hidden / heads
    tokenizer = byte_tokenizer()
    config = FAMILIES[family](
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=n_layers,
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads,
        head_dim=head_dim,
        max_position_embeddings=context,
        original_max_position_embeddings=context,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
        # wide enough that attention is far from uniform: a mistake in it must show in the logits
        initializer_range=0.35,
        **settings,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = AutoModelForCausalLM.from_config(config, dtype=dtype)
    network.eval().requires_grad_(False)
    facts = read_facts(network, name=f"tiny-random-{family}", source="random")
    return LanguageModel(network, tokenizer, facts)


def byte_tokenizer() -> Any:
    """Every byte is a token; two special tokens follow."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(word, special=True) for word in _SPECIAL])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=_SPECIAL[0], eos_token=_SPECIAL[1], pad_token=_SPECIAL[1]
    )
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer
