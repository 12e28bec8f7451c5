"""What stands in the fields, and the settings it means: both ways, without a page.

Knows the settings objects and how people write them; does not know gradio, an engine or a model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kvviz.catalogue import text
from kvviz.config import CacheConfig, LayerOverride, RunConfig, SamplingConfig
from kvviz.errors import KvvizError
from kvviz.quant_config import (
    INTEGER_BITS,
    MIN_HADAMARD_BLOCK,
    QuantConfig,
    divisors,
    hadamard_block,
)
from kvviz.ui.context import Presets

#: The order in which a configuration's fields stand on the page.
CACHE_FIELDS = (
    "sink_size", "window_size", "middle", "block_size", "key", "value",
    "position", "offload", "offload_read", "prefill", "overrides",
)  # fmt: skip
REQUEST_FIELDS = (
    "prompt", "use_chat_template", "max_new_tokens", "decoding", "temperature", "top_p", "seed",
)  # fmt: skip
#: offered places of sealed blocks; others can be written
OFFLOADS = ("none", "host", "disk", "device:512t,host", "host:64MiB,disk")
WHOLE_NUMBERS = ("sink_size", "window_size", "block_size")


class FormError(KvvizError):
    """Something in the form cannot be read. The sentence lies under ``ui.form``."""

    section = "ui.form"


def cache_fields(cache: CacheConfig) -> list[Any]:
    """What to put into the fields for ``cache``."""
    plain = cache.to_dict() | {"offload_read": cache.offload_read.value}
    plain["overrides"] = "\n".join(f"{o.layer}:{o.key.spec}/{o.value.spec}" for o in cache.overrides)
    return [plain[name] for name in CACHE_FIELDS]


def read_cache(values: Sequence[Any]) -> CacheConfig:
    """The settings that the fields mean.

    Raises:
        KvvizError: names the field and the rule it breaks.
    """
    plain = dict(zip(CACHE_FIELDS, values, strict=True))
    overrides = read_overrides(str(plain.pop("overrides") or ""))
    for name in WHOLE_NUMBERS:
        plain[name] = whole(plain[name])
    for name in ("key", "value", "offload"):
        plain[name] = str(plain[name] or "")
    plain["overrides"] = [{"layer": o.layer, "key": o.key.spec, "value": o.value.spec} for o in overrides]
    return CacheConfig.from_dict(plain)


def read_overrides(written: str) -> tuple[LayerOverride, ...]:
    """One ``layer:key/value`` a line.

    Raises:
        KvvizError: a line that is not of this form, or a quantizer that is none.
    """
    overrides = []
    for line in filter(None, (line.strip() for line in written.splitlines())):
        layer, colon, sides = line.partition(":")
        key, slash, value = sides.partition("/")
        if not (colon and slash and layer.strip().isdecimal()):
            raise FormError("override_line", line=line)
        overrides.append(LayerOverride(int(layer), QuantConfig.parse(key), QuantConfig.parse(value)))
    return tuple(overrides)


def whole(value: Any) -> Any:
    """A number field's content as a whole number where it is one; else as it reads in an error."""
    if value is None or value == "":
        return text("ui.form.empty_field")
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value


def describe(preset: str, values: Sequence[Any], presets: Presets) -> str:
    """``KIVI-style 4-bit``, or ``custom (from KIVI-style 4-bit)`` when a field differs from the preset.

    Raises:
        KvvizError: the fields mean nothing yet.
    """
    label = presets.label(preset)
    same = read_cache(values) == presets.cache(preset)
    return label if same else text("ui.form.custom", label=label)


def read_request(
    request: dict[str, Any], sides: Sequence[tuple[str, Sequence[Any]]], presets: Presets
) -> list[RunConfig]:
    """One run for each configuration; ``sides`` are pairs of preset name and field values.

    Raises:
        KvvizError: says which configuration and which field cannot be used.
    """
    sampling = read_sampling(request)
    configs = []
    for letter, (preset, values) in zip("AB", sides, strict=True):
        cache = read_side(letter, values)
        configs.append(
            RunConfig(
                prompt=str(request["prompt"] or ""),
                cache=cache,
                label=describe(preset, values, presets),
                use_chat_template=bool(request["use_chat_template"]),
                max_new_tokens=whole(request["max_new_tokens"]),
                sampling=sampling,
            )
        )
    return configs


def read_side(letter: str, values: Sequence[Any]) -> CacheConfig:
    """One configuration of several.

    Raises:
        KvvizError: names the configuration, the field and the rule it breaks.
    """
    try:
        return read_cache(values)
    except KvvizError as error:
        raise FormError("side", letter=letter, message=str(error)) from error


def read_sampling(request: dict[str, Any]) -> SamplingConfig:
    """How tokens are chosen.

    Raises:
        KvvizError: a field that is empty or out of range.
    """
    if request["decoding"] == "greedy":
        return SamplingConfig()
    for name in ("temperature", "top_p"):
        if not isinstance(request[name], (int, float)):
            raise FormError("number_missing", name=name)
    if request["temperature"] == 0:
        raise FormError("temperature_zero")
    return SamplingConfig(float(request["temperature"]), float(request["top_p"]), whole(request["seed"]))


def quantizer_choices(head_dim: int, block_size: Any, side: str = "key") -> list[str]:
    """Quantizers of one side that fit: 8, 4 and 2 bits in every group, and a few of the other schemes."""
    block = whole(block_size)
    blocks = divisors(block)[::-1] if isinstance(block, int) and block > 0 else []
    tokens = divisors(head_dim)[::-1]
    specs = ["none"]
    for bits in INTEGER_BITS:
        some = slice(1) if bits == 3 else slice(None)
        specs += [f"int{bits}:token:g{g}:{how}" for g in tokens[some] for how in ("absmax", "minmax")]
        specs += [f"int{bits}:channel:g{g}:minmax" for g in blocks[some]]
    token, channel = tokens[:1], blocks[:1]
    specs += [*(f"nf4:token:g{g}" for g in token), "fp8", "fp8:head"]
    specs += [f"int4:token:g{g}:minmax{end}" for g in token for end in ("+outliers1", "+hadamard")]
    if side == "key":
        specs += [f"int4:channel:g{g}:minmax+prerotary" for g in channel]
    return [
        spec for spec in specs if "+hadamard" not in spec or hadamard_block(head_dim) >= MIN_HADAMARD_BLOCK
    ]
