"""A request survives its link exactly; whatever is no link of ours is refused in one sentence."""

from __future__ import annotations

import base64
import random
import zlib
from urllib.parse import parse_qsl, quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.config import CacheConfig, LayerOverride, Middle, Offload, Position, Prefill
from kvviz.errors import ConfigError
from kvviz.link_values import Cache, CacheChoice, Choice, Flag, Number, Whole, Words, shown
from kvviz.permalink import MOST_CHARACTERS, LinkForm, read_query
from kvviz.presets import preset, preset_names
from kvviz.quant_config import QuantConfig
from tests.cache.cases import offloads

PRESETS = {name: preset(name) for name in preset_names()}
FORM = LinkForm(
    "run",
    {
        "model": Choice(["tiny", "HuggingFaceTB/SmolLM2-135M-Instruct"]),
        "p": Words(20_000),
        "chat": Flag(),
        "n": Whole(1, 8192),
        "t": Number(0, 5),
        "seed": Whole(0, 2**53 - 1),
        "a": Cache(PRESETS),
        "b": Cache(PRESETS),
    },
    tabs=("run", "compare"),
)
SPECS = [
    "none", "fp8", "fp8:head", "nf4:token:g64", "int8:token:g64:absmax", "int4:channel:g32:minmax:m32",
    "int4:token:g64:minmax+outliers1+hadamard", "int2:token:g32:minmax",
    "int4:token:g64:minmax+static+guard0.5",
]  # fmt: skip

texts = st.text(st.characters(exclude_categories=["Cc", "Cs"], include_characters="\n\t"), max_size=2_000)
quantizers = st.sampled_from(SPECS).map(QuantConfig.parse)
layers = st.lists(
    st.builds(LayerOverride, st.integers(0, 99), quantizers, quantizers),
    max_size=4,
    unique_by=lambda o: o.layer,
).map(tuple)


@st.composite
def caches(draw) -> CacheConfig:
    middle = draw(st.sampled_from(Middle))
    return CacheConfig(
        sink_size=draw(st.integers(0, 1_000_000)),
        window_size=draw(st.integers(1, 1_000_000)),
        middle=middle,
        block_size=draw(st.integers(1, 65_536)),
        key=draw(quantizers | st.just(QuantConfig.parse("int4:channel:g64:minmax+prerotary"))),
        value=draw(quantizers),
        position=draw(st.sampled_from(Position)),
        offload=draw(offloads()) if middle is Middle.QUANTIZE else Offload.NONE,
        prefill=Prefill.STREAMED if middle is Middle.EVICT else draw(st.sampled_from(Prefill)),
        overrides=draw(layers),
    )


choices = st.builds(CacheChoice, st.sampled_from(preset_names()), caches())
requests = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["tiny", "HuggingFaceTB/SmolLM2-135M-Instruct"]),
        "p": texts,
        "chat": st.booleans(),
        "n": st.integers(1, 8192),
        "t": st.floats(0, 5),
        "seed": st.integers(0, 2**53 - 1),
        "a": choices,
        "b": choices,
    },
)


def outcome(act):
    """What comes of it, or the refusal."""
    try:
        return act()
    except ConfigError as error:
        return error


@settings(max_examples=40)
@given(requests)
def test_a_request_survives_its_link(request_) -> None:
    query = outcome(lambda: FORM.encode(request_))
    if isinstance(query, ConfigError):
        assert query.code in ("link_too_long", "link_number")
        if query.code == "link_number":  # a float with more digits than a link takes
            assert 0 < request_["t"] < 1e-7
        return
    assert FORM.decode(query) == FORM.decode("?" + query) == request_
    assert FORM.encode(FORM.decode(query)) == query, "one request has one link"
    assert len(query) <= MOST_CHARACTERS
    assert query.isascii()
    assert not set(query) & set(' <>"#+\\^`{|}\n')


@given(st.text(max_size=300))
def test_any_text_is_a_link_or_is_refused(query: str) -> None:
    for candidate in (query, f"v=1&{query}", f"v=1&a={query}", f"v=1&p={query}"):
        found = outcome(lambda candidate=candidate: FORM.decode(candidate))
        if isinstance(found, ConfigError):
            assert str(found).count("\n") == 0
            assert len(str(found)) < 700
        else:
            assert found is None or set(found) <= set(FORM.kinds)


@settings(max_examples=40)
@given(texts)
def test_long_texts_are_packed_only_when_that_is_shorter(words: str) -> None:
    kind = Words(20_000)
    written = kind.write("p", words)
    assert kind.read("p", written) == words
    if len(quote(words)) <= 200 and not words.startswith("~"):
        assert written == words


def test_links_are_short_and_readable() -> None:
    stack = CacheChoice("full-stack", PRESETS["full-stack"])
    small = CacheChoice(
        "full-stack",
        CacheConfig.from_dict(PRESETS["full-stack"].to_dict() | {"window_size": 16, "value": "none"}),
    )
    query = FORM.encode({"model": "tiny", "p": "Hello", "n": 24, "a": stack, "b": small})
    assert query == "v=1&tab=run&model=tiny&p=Hello&n=24&a=full-stack&b=full-stack;window=16;value=none"


def test_a_document_fits_into_a_link() -> None:
    from kvviz.presets import prompt_presets

    longest = max((p.text for p in prompt_presets()), key=len)
    assert len(longest) > 5_000
    query = FORM.encode({"p": longest})
    assert len(query) < 5_000
    assert FORM.decode(query) == {"p": longest}


def test_no_link_and_links_of_others_change_nothing() -> None:
    for query in ("", "?", "__theme=dark", "lang=zh&__sign=abc", "a=full", "utm_source=x"):
        assert FORM.decode(query) is None, query
    assert FORM.decode("v=1&tab=compare&anything=1") is None
    assert FORM.decode("v=1") == {}
    assert FORM.decode("?v=1&lang=zh&__theme=dark&n=5") == {"n": 5}


def bomb() -> str:
    return "~" + base64.urlsafe_b64encode(zlib.compress(b"a" * 2_000_000, 9)).decode().rstrip("=")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("v=2&n=5", "link_version"),
        ("v=&n=5", "link_version"),
        ("v=1%00", "link_version"),
        ("v=<script>alert(1)</script>", "link_version"),
        ("v=1&v=1", "link_twice"),
        ("v=1&n=5&n=6", "link_twice"),
        ("v=1&n=%FF%FE", "link_unreadable"),
        ("v=1" + "&x=1" * 100, "link_unreadable"),
        ("v=1&p=" + "x" * 9_000, "link_too_long"),
        ("v=1&run=1", "link_key"),
        ("v=1&__proto__=1&constructor=1", "link_key"),
        ("v=1&<img src=x onerror=alert(1)>=1", "link_key"),
        ("v=1&tab=/etc/passwd", "link_choice"),
        ("v=1&model=/etc/passwd", "link_choice"),
        ("v=1&model=../../secret", "link_choice"),
        ("v=1&model=https://example.com/model", "link_choice"),
        ("v=1&model=", "link_choice"),
        ("v=1&chat=true", "link_choice"),
        ("v=1&n=0", "link_number"),
        ("v=1&n=-1", "link_number"),
        ("v=1&n=8193", "link_number"),
        ("v=1&n=007", "link_number"),
        ("v=1&n=" + "9" * 400, "link_number"),
        ("v=1&n=1e3", "link_number"),
        ("v=1&n=0x10", "link_number"),
        ("v=1&n=٣", "link_number"),
        ("v=1&n=1_0", "link_number"),
        ("v=1&t=nan", "link_number"),
        ("v=1&t=inf", "link_number"),
        ("v=1&t=-0.1", "link_number"),
        ("v=1&t=5.1", "link_number"),
        ("v=1&t=1." + "0" * 40, "link_number"),
        ("v=1&p=a%00b", "link_character"),
        ("v=1&p=%1B[2J", "link_character"),
        ("v=1&p=~", "link_packed"),
        ("v=1&p=~not base64!", "link_packed"),
        ("v=1&p=~AAAA", "link_packed"),
        ("v=1&p=" + bomb(), "link_text_long"),
        ("v=1&a=unknown", "link_choice"),
        ("v=1&a=", "link_choice"),
        ("v=1&a=full;", "link_setting"),
        ("v=1&a=full;colour=red", "link_setting"),
        ("v=1&a=full;window=1;window=2", "link_setting"),
        ("v=1&a=full;window=0", "link_number"),
        ("v=1&a=full;window=99999999999999999999", "link_number"),
        ("v=1&a=full;middle=sometimes", "unknown_choice"),
        ("v=1&a=full;key=int9:token:g64:absmax", "quant_bits"),
        ("v=1&a=full;key=__import__('os')", "link_setting"),
        ("v=1&a=full;key=" + "int8:" * 50, "link_setting"),
        ("v=1&a=full;key=<b>", "link_setting"),
        ("v=1&a=full;offload=host", "offload_needs_blocks"),
        ("v=1&a=k8v4;layers=x:none/none", "link_number"),
        ("v=1&a=k8v4;layers=1", "link_setting"),
        ("v=1&a=k8v4;layers=1:none/none,1:none/none", "override_twice"),
        ("v=1&a=k8v4;layers=1:none/int4:channel:g64:minmax%2Bprerotary", "prerotary_value"),
    ],
)  # fmt: skip
def test_hostile_links_are_refused_in_a_sentence(query: str, code: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        FORM.decode(query)
    assert refusal.value.code == code
    sentence = str(refusal.value)
    assert all(c.isprintable() for c in sentence)
    assert len(sentence) < 700


def test_a_packed_text_with_something_behind_it_is_damaged() -> None:
    packed = base64.urlsafe_b64encode(zlib.compress(b"hello") + b"more").decode().rstrip("=")
    with pytest.raises(ConfigError, match="damaged"):
        FORM.decode(f"v=1&p=~{packed}")


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"model": "/a/folder"}, "link_choice"),
        ({"n": 10**6}, "link_number"),
        ({"n": 5.5}, "link_number"),
        ({"n": True}, "link_number"),
        ({"t": float("nan")}, "link_number"),
        ({"p": "a\x00"}, "link_character"),
        ({"p": "\ud800"}, "link_character"),
        ({"p": "x" * 20_001}, "link_text_long"),
        ({"a": CacheChoice("none such", CacheConfig())}, "link_choice"),
        ({"a": CacheChoice("full", CacheConfig(window_size=10**7))}, "link_number"),
        ({"colour": "red"}, "link_key"),
    ],
)
def test_what_no_link_carries_is_refused_when_it_is_made(values, code: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        FORM.encode(values)
    assert refusal.value.code == code


def test_what_does_not_compress_is_refused_by_length() -> None:
    rng = random.Random(7)
    noise = "".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(5_000))
    with pytest.raises(ConfigError) as refusal:
        FORM.encode({"p": noise})
    assert refusal.value.code == "link_too_long"


def test_other_tabs_have_links_of_their_own() -> None:
    compare = LinkForm("compare", {key: Cache(PRESETS) for key in "abcd"}, tabs=FORM.tabs)
    four = {key: CacheChoice(name, PRESETS[name]) for key, name in zip("abcd", preset_names(), strict=False)}
    query = compare.encode(four)
    assert compare.decode(query) == four
    assert FORM.decode(query) is None
    assert compare.decode("v=1&a=full") is None, "a link without a tab is for the first one"
    assert set(FORM.decode("v=1&a=full") or ()) == {"a"}


@pytest.mark.parametrize(
    ("query", "is_named"),
    [
        ("?tab=run", True), ("tab=run&v=9", True), ("?v=1&tab=run&n=%00", True), ("?v=1", False),
        ("?v=1&tab=runner", False), ("?v=1&crab=run", False), ("?v=1&p=tab=run", False), ("", False),
    ],
)  # fmt: skip
def test_a_link_names_its_tab_even_when_it_cannot_be_read(query: str, is_named: bool) -> None:
    assert FORM.is_named(query) is is_named


def test_pairs_and_shown_words() -> None:
    assert read_query("v=1&x=1%2B1") == {"x": "1+1"}
    assert dict(parse_qsl("x=1%2B1")) == {"x": "1+1"}
    assert shown("a\x00\u202eb") == "a\ufffd\ufffdb"
    assert shown("x" * 100) == "x" * 40 + "…"
