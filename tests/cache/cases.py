"""One random configuration, as the settings under test and as the oracle's rule; and ways to feed it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from hypothesis import strategies as st

from kvviz.cache import CacheSession
from kvviz.config import CacheConfig, LayerOverride, Middle, Offload, Position, Prefill
from kvviz.models import LanguageModel
from kvviz.quant_config import QuantConfig
from tests.oracles.model_oracle import Rule

HEAD_DIM = 16
FAMILIES = ("llama", "qwen2", "qwen3", "phi3")


@dataclass(frozen=True)
class Case:
    """A configuration, a text, and the places where it is cut into chunks."""

    family: str
    kv_heads: int
    config: CacheConfig
    ids: tuple[int, ...]
    cuts: tuple[int, ...]
    prompt: int = 0

    @property
    def rule(self) -> Rule:
        config = self.config
        return Rule(
            sinks=config.sink_size,
            window=config.window_size,
            middle=config.middle.value,
            block=config.block_size,
            key=config.key.spec,
            value=config.value.spec,
            in_cache=config.position is Position.IN_CACHE,
            exact_prompt=self.prompt if config.prefill is Prefill.EXACT else 0,
            overrides={o.layer: (o.key.spec, o.value.spec) for o in config.overrides},
        )

    @property
    def feedings(self) -> list[list[int]]:
        """Lengths: the whole text, the drawn chunks, single tokens."""
        tokens = len(self.ids)
        edges = [0, *sorted(set(self.cuts)), tokens]
        chunks = [b - a for a, b in pairwise(edges) if b > a]
        return [[tokens], chunks, [1] * tokens]


def specs(block: int, *, keys: bool = False) -> st.SearchStrategy[str]:
    """Spec strings that fit ``HEAD_DIM`` and ``block``; those of keys may stand before rotary."""
    token = st.sampled_from([g for g in (4, 8, 16) if HEAD_DIM % g == 0]).map(lambda g: f"token:g{g}")
    channel = st.sampled_from([g for g in (1, 2, 4, 8) if block % g == 0]).map(lambda g: f"channel:g{g}")
    axis = st.one_of(token, channel, st.sampled_from(["head", "tensor"]))
    meta = st.sampled_from(["", ":m32"])
    integer = st.builds(
        lambda bits, axis, mapping, meta: f"int{bits}:{axis}:{mapping}{meta}",
        st.sampled_from([8, 4, 3, 2]),
        axis,
        st.sampled_from(["absmax", "minmax"]),
        meta,
    )
    normal = st.builds(lambda axis, meta: f"nf4:{axis}{meta}", axis, meta)
    few = st.sampled_from(["fp8", "fp8:token:g16", "fp8:head"])
    plain = st.one_of(integer, integer, normal, few)
    modified = st.builds(
        "{}{}{}{}".format,
        plain,
        st.sampled_from(["", "+prerotary"] if keys else [""]),
        st.sampled_from(["", "+outliers0.5", "+outliers7", "+outliers30"]),
        st.sampled_from(["", "+hadamard"]),
    )
    return st.one_of(plain, modified, modified, st.just("none"))


def offloads() -> st.SearchStrategy[Offload]:
    """Nothing, one place, or several with capacities in tokens or bytes."""
    few = ["none", "host", "disk"]
    sizes = st.one_of(st.integers(1, 20).map("{}t".format), st.integers(1, 3000).map("{}B".format))
    several = st.one_of(
        st.builds("device:{},host".format, sizes),
        st.builds("host:{},disk".format, sizes),
        st.builds("device:{},host:{},disk".format, sizes, sizes),
    )
    return st.one_of(st.sampled_from(few), several).map(Offload.parse)


@st.composite
def cases(
    draw: st.DrawFn,
    middle: Middle,
    *,
    position: Position | None = None,
    prefill: Prefill = Prefill.STREAMED,
    overrides: bool = False,
) -> Case:
    tokens = draw(st.integers(1, 32))
    block = draw(st.sampled_from([1, 2, 3, 4, 8]))
    quantizes = middle is Middle.QUANTIZE
    key, value = (
        specs(block, keys=keys).map(QuantConfig.parse) if quantizes else st.just(QuantConfig())
        for keys in (True, False)
    )
    layers = draw(st.lists(st.integers(0, 1), unique=True, max_size=2)) if overrides else []
    config = CacheConfig(
        sink_size=draw(st.integers(0, 6)),
        window_size=draw(st.integers(1, 12)),
        middle=middle,
        block_size=block,
        key=draw(key),
        value=draw(value),
        position=position or draw(st.sampled_from(Position)),
        offload=draw(offloads()) if quantizes else Offload.NONE,
        prefill=prefill,
        overrides=tuple(LayerOverride(layer, draw(key), draw(value)) for layer in layers),
    )
    seed = draw(st.integers(0, 2**16))
    ids = torch.randint(0, 256, (tokens,), generator=torch.Generator().manual_seed(seed)).tolist()
    cuts = draw(st.lists(st.integers(1, tokens), max_size=5))
    prompt = draw(st.integers(1, tokens))
    family = draw(st.sampled_from(FAMILIES))
    return Case(family, draw(st.sampled_from([1, 2, 4])), config, tuple(ids), tuple(cuts), prompt)


def feed(
    model: LanguageModel, session: CacheSession, ids: tuple[int, ...], lengths: list[int]
) -> torch.Tensor:
    """Logits ``(T, V)`` of ``ids`` fed in pieces of ``lengths``."""
    rows, start = [], 0
    for length in lengths:
        rows.append(model.forward(ids[start : start + length], session, last_only=False))
        start += length
    return torch.cat(rows)


def stored(session: CacheSession) -> dict[tuple[int, str, str], torch.Tensor]:
    """A copy of every part of every sealed side: codes, scales, minima or exact values."""
    return {
        (index, side, part): tensor.clone()
        for index, layer in enumerate(session.layers)
        for side in ("key", "value")
        for part, tensor in layer.sealed.sides[side].parts().items()
    }
