"""Bytes, labels and streaming: what a person reads is exactly what the model said."""

from __future__ import annotations

import pytest

from kvviz.models import ByteStreamer
from kvviz.models.tokens import TokenText, display

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
STRINGS = ["Hello world", "東京", "💩", "café", "a<b<c", "<s> </s>", '"onerror=x', "tab\there\nnext", FAMILY]


class _Pieces:
    """A tokenizer of word pieces with a space mark and byte fallback."""

    pieces = ("▁Hello", "▁world", "<0xE6>", "<0x9D>", "<0xB1>", "</s>")
    backend_tokenizer = type("Backend", (), {"decoder": "Sequence(Replace, ByteFallback, Strip)"})()
    added_tokens_decoder = {5: type("Added", (), {"content": "</s>", "special": True})()}  # noqa: RUF012

    def convert_ids_to_tokens(self, token_id):
        return self.pieces[token_id] if token_id < len(self.pieces) else None


class _WithText:
    def __init__(self, tokenizer):
        self.token_text = TokenText(tokenizer)


def stream(model, ids):
    streamer = ByteStreamer(model)
    deltas = [streamer.push(token) for token in ids]
    return deltas, streamer.flush()


@pytest.mark.parametrize("text", STRINGS)
def test_labels_joined_are_the_text(tiny, text):
    model = tiny()
    labels = model.labels(model.encode(text, False))
    assert b"".join(label.raw for label in labels) == text.encode()


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b" world", "␠world"),
        (b"\n", "⏎"),
        (b"\t", "⇥"),
        (b"\xe6\x9d", "‹E6·9D›"),
        (b"\x00", "␀"),
        ("\ufffd".encode(), "‹U+FFFD›"),
        (b"<img src=x>", "<img␠src=x>"),
    ],
)
def test_display(raw, shown):
    assert display(raw) == shown


def test_word_pieces_lose_only_the_first_space():
    text = TokenText(_Pieces())
    labels = text.labels([0, 1, 2, 3, 4], at_start=True)
    assert [label.display for label in labels] == ["Hello", "␠world", "‹E6›", "‹9D›", "‹B1›"]
    assert text.labels([1], at_start=False)[0].display == "␠world"
    assert stream(_WithText(_Pieces()), [0, 1, 2, 3, 4, 5]) == (["Hello", " world", "", "", "東", ""], "")
    assert text.raw(99) == b"<99>"


def test_stream_waits_for_whole_characters_and_flushes_the_rest(tiny):
    model = tiny()
    ids = model.encode("é東", False)
    deltas, tail = stream(model, ids[:-1])
    assert deltas == ["", "é", "", ""]
    assert tail == "\ufffd"
    assert "".join(deltas) + tail == model.decode(ids[:-1])


def test_special_tokens_are_shown_but_are_no_text(tiny):
    model = tiny()
    ids = model.encode("hi<|im_end|>", False)
    assert model.labels(ids)[-1].display == "<|im_end|>"
    assert stream(model, ids)[0][-1] == ""


@pytest.mark.real
def test_reference_ids(default_model):
    assert default_model.encode("Hello world", False) == [19556, 905]
    assert default_model.encode("東京", False) == [30679, 126, 16736, 122]
    assert default_model.encode("💩", False) == [10813, 236, 119]
    assert len(default_model.encode(FAMILY, False)) == 13
    assert default_model.encode("<|im_start|>", False) == [1]


@pytest.mark.real
def test_reference_labels(default_model):
    shown = [label.display for label in default_model.labels(default_model.encode("Hello world", False))]
    assert shown == ["Hello", "␠world"]
    kyoto = default_model.labels([30679, 126, 16736, 122])
    assert [label.display for label in kyoto] == ["‹E6·9D›", "‹B1›", "‹E4·BA›", "‹AC›"]


@pytest.mark.real
def test_reference_stream(default_model):
    assert stream(default_model, [10813, 236, 119]) == (["", "", "💩"], "")
    assert stream(default_model, [30679, 126, 16736, 122]) == (["", "東", "", "京"], "")


@pytest.mark.real
@pytest.mark.parametrize("text", STRINGS)
def test_real_round_trip(default_model, text):
    ids = default_model.encode(text, False)
    deltas, tail = stream(default_model, ids)
    assert "".join(deltas) + tail == text == default_model.decode(ids)
