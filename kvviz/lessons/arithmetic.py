"""Memory arithmetic: from a model's shape to bytes, checked against the ledger, then extrapolated."""

from __future__ import annotations

from kvviz import calculator
from kvviz.experiment import LabResult, Table, table
from kvviz.lessons.lesson import Choice, Estimate, Evidence, Facts, Lesson, Task, Truth, binned
from kvviz.units import format_bytes, format_count, format_gib

SHORT = Task("arithmetic-128", "caches", {"caches": ["full"], "length": 128, "skip": 64})
LONG = Task("arithmetic-256", "caches", {"caches": ["full"], "length": 256, "skip": 64})
TARGET, TARGET_TOKENS = "Llama-2-7B", 4096
#: Named models of the table, from the smallest cache a token to the largest.
NAMED = (
    "SmolLM2-135M",
    "Qwen2.5-7B",
    "Mistral-7B-v0.3",
    "Llama-3-8B",
    "Llama-3-70B",
    "Llama-2-7B",
    "Llama-2-13B",
)
_GIB = 1 << 30


def _counted(result: LabResult) -> int:
    """Bytes that the ledger counted, everything exact."""
    (row,) = result.tables["caches"].rows
    return int(str(row[[c.key for c in result.tables["caches"].columns].index("cache_bytes")]))


def _token_bytes_16bit(evidence: Evidence) -> float:
    """Counted bytes of a token, as they would be at 2 bytes a number."""
    result = evidence.results[LONG.name]
    return _counted(result) / int(result.settings["length"]) * 2 / result.model.dtype_bytes


def _doubling(evidence: Evidence) -> Truth:
    ratio = _counted(evidence.results[LONG.name]) / _counted(evidence.results[SHORT.name])
    return binned(ratio, (1.4, 2.8), ("same", "twice", "four"))


def _target_gib(evidence: Evidence) -> float:
    """Computed: by the formula that the ledger has just been compared with."""
    return calculator.full_bytes(calculator.model(TARGET), TARGET_TOKENS) / _GIB


def _facts(evidence: Evidence) -> Facts:
    result = evidence.results[LONG.name]
    facts, target = result.model, calculator.model(TARGET)
    counted = _counted(result)
    formula = round(facts.kv_bytes_per_token(facts.dtype_bytes) * result.settings["length"])
    agrees = formula == counted
    return {
        "model": facts.name,
        "layers": format_count(facts.n_layers),
        "heads": format_count(facts.n_heads),
        "kv_heads": format_count(facts.n_kv_heads),
        "head_dim": format_count(facts.head_dim),
        "tokens": format_count(result.settings["length"]),
        "half_tokens": format_count(evidence.results[SHORT.name].settings["length"]),
        "dtype": facts.dtype,
        "dtype_bytes": format_count(facts.dtype_bytes),
        "counted": format_count(counted),
        "counted_half": format_count(_counted(evidence.results[SHORT.name])),
        "formula": format_count(formula),
        "sign": "=" if agrees else "≠",
        "per_token": format_count(round(counted / result.settings["length"])),
        "per_token_16": format_count(round(_token_bytes_16bit(evidence))),
        "target": TARGET,
        "target_tokens": format_count(TARGET_TOKENS),
        "target_layers": format_count(target.n_layers),
        "target_kv_heads": format_count(target.n_kv_heads),
        "target_head_dim": format_count(target.head_dim),
        "target_gib": format_gib(calculator.full_bytes(target, TARGET_TOKENS)),
        "target_token": format_bytes(calculator.full_bytes(target, 1)),
    }


def _named(evidence: Evidence) -> dict[str, Table]:
    known = {shape.name: shape for shape in calculator.models()}
    rows = [
        [
            name, shape.n_layers, shape.n_kv_heads, shape.head_dim, calculator.full_bytes(shape, 1),
            calculator.full_bytes(shape, 4096), calculator.full_bytes(shape, 32768),
        ]
        for name in NAMED
        if (shape := known.get(name)) is not None
    ]  # fmt: skip
    columns = [
        ("model_name", "text"), ("model_layers", "count"), ("model_kv_heads", "count"),
        ("model_head_dim", "count"), ("token_bytes", "bytes"), ("at_4096", "bytes"), ("at_32768", "bytes"),
    ]  # fmt: skip
    return {"extrapolated": table(columns, rows)}  # type: ignore[arg-type]


LESSON = Lesson(
    key="arithmetic",
    tasks=(SHORT, LONG),
    questions=(
        Estimate("token", "bytes", _token_bytes_16bit, right=0.01, near=0.5),
        Choice("twice", ("same", "twice", "four"), _doubling),
        Estimate("target", "gib", _target_gib, right=0.03, near=0.5),
    ),
    figures=((LONG.name, "bytes"),),
    tables=((LONG.name, "caches"),),
    facts=_facts,
    given=_facts,
    computed=_named,
    bound=True,
)
