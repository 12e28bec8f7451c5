"""Every lesson's truth follows the numbers, whichever way they point."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kvviz import calculator
from kvviz.lessons import (
    Estimate,
    Evidence,
    arithmetic,
    bits,
    budget,
    check,
    lesson,
    memory,
    offload,
    repair,
    saves,
    scales,
    sink,
    window,
)
from tests.lessons.made import caches_evidence, eviction_evidence, made_result


def best(key, question, evidence):
    """The best answer, and all that are accepted."""
    asked = next(q for q in lesson(key).questions if q.key == question)
    truth = asked.truth(evidence)
    if isinstance(asked, Estimate):
        return truth
    for option in asked.options:
        assert (check(asked, option, evidence).kind == "right") == (option in truth.accepted)
    return truth.best


def saves_evidence(ms_cached, ms_anew, same=True):
    arrays = {"fed": [[256, 1, 1], [256, 257, 258]], "ms": [[900, *ms_cached], [900, *ms_anew]]}
    arrays["same"] = [True, True, same]
    result = made_result(
        saves.TASK, {"saves": [{"a": 1}]}, arrays=arrays, marks={"largest_logit_difference": 1e-5}
    )
    return Evidence({saves.TASK.name: result})


def test_saves():
    evidence = saves_evidence((10, 10), (100, 102))
    assert best("saves", "work", evidence) == 256 + 257 + 258
    assert best("saves", "time", evidence) == "tens"
    assert best("saves", "time", saves_evidence((10, 10), (11, 11))) == "same"
    assert best("saves", "time", saves_evidence((10, 10), (500, 900))) == "hundreds"
    assert best("saves", "words", evidence) == "yes"
    assert best("saves", "words", saves_evidence((1, 1), (1, 1), same=False)) == "no"


def arithmetic_evidence(short, long):
    results = {}
    for task, counted in ((arithmetic.SHORT, short), (arithmetic.LONG, long)):
        results[task.name] = made_result(task, {"caches": [{"scheme_name": "full", "cache_bytes": counted}]})
    return Evidence(results)


def test_arithmetic():
    evidence = arithmetic_evidence(128 * 46080, 256 * 46080)
    model = evidence.results[arithmetic.LONG.name].model
    assert best("arithmetic", "token", evidence) == 46080 * 2 / model.dtype_bytes
    assert best("arithmetic", "twice", evidence) == "twice"
    assert best("arithmetic", "twice", arithmetic_evidence(1000, 1000)) == "same"
    assert best("arithmetic", "twice", arithmetic_evidence(1000, 4000)) == "four"
    assert best("arithmetic", "target", evidence) == pytest.approx(2.0)
    (named,) = lesson("arithmetic").computed(evidence).values()
    assert named.column("model_name") == list(arithmetic.NAMED), "every named model has a published shape"
    per_token = dict(zip(named.column("model_name"), named.column("token_bytes"), strict=True))
    assert per_token["Llama-2-7B"] == 2 * 32 * 32 * 128 * 2
    assert named.column("at_4096")[0] == 4096 * per_token["SmolLM2-135M"]
    assert calculator.model(arithmetic.TARGET).n_kv_heads == 32


def sink_evidence(natural_rate, repeated_rate, weight=0.4):
    rows = [
        {"kind": kind, "k": 1, "sink_rate": rate, "mean_weight": weight, "even_weight": 0.07}
        for kind, rate in (("natural", natural_rate), ("repeated", repeated_rate))
    ]
    result = made_result(sink.TASK, {"rates": rows}, marks={"epsilon": 0.3})
    return Evidence({sink.TASK.name: result})


def test_sink():
    assert best("sink", "weight", sink_evidence(0.7, 0)) == 0.4
    assert best("sink", "heads", sink_evidence(0.7, 0)) == "most"
    assert best("sink", "heads", sink_evidence(0.3, 0)) == "some"
    assert best("sink", "heads", sink_evidence(0.01, 0)) == "few"
    assert best("sink", "repeated", sink_evidence(0.7, 0)) == "gone"
    assert best("sink", "repeated", sink_evidence(0.7, 0.3)) == "weaker"
    assert best("sink", "repeated", sink_evidence(0.7, 0.7)) == "stays"
    assert best("sink", "repeated", sink_evidence(0.0, 0.0)) == "gone"  # a model without a sink


def window_evidence(before=0.0, soon=1.0, rest=1.0, ppl=20.0):
    leaves = window.TASK.settings["budget"]
    nll = np.zeros((2, 639))
    nll[1, :leaves], nll[1, leaves : leaves + 64], nll[1, leaves + 64 :] = before, soon, rest
    return eviction_evidence(window.TASK, 10.0, {0: ppl}, nll)


def test_window():
    assert best("window", "damage", window_evidence()) == "collapse"
    assert best("window", "damage", window_evidence(ppl=11.5)) == "little"
    assert best("window", "damage", window_evidence(ppl=10.1)) == "nothing"
    assert best("window", "when", window_evidence()) == "leaves"
    assert best("window", "when", window_evidence(before=1.0)) == "start"
    assert best("window", "when", window_evidence(soon=0.05)) == "slowly"
    assert best("window", "when", window_evidence(soon=0.001, rest=0.001)) == "never"


def test_repair():
    good = eviction_evidence(repair.TASK, 10.0, {0: 20.0, 1: 11.0, 4: 10.9, 8: 10.9})
    assert best("repair", "four", good) == "most"
    assert best("repair", "fewest", good) == "1"
    late = eviction_evidence(repair.TASK, 10.0, {0: 20.0, 1: 19.0, 4: 11.0, 8: 10.9})
    assert best("repair", "fewest", late) == "4"
    useless = eviction_evidence(repair.TASK, 10.0, {0: 20.0, 1: 20.0, 4: 19.9, 8: 11.0})
    assert best("repair", "four", useless) == "nothing"
    assert best("repair", "fewest", useless) == "8"
    harmless = eviction_evidence(repair.TASK, 10.0, {0: 10.05, 1: 10.05, 4: 10.05, 8: 10.05})
    assert best("repair", "fewest", harmless) == "none"


def memory_evidence(said, ppl):
    rows = [
        {"cache": cache, "answer": said.get((cache, depth), "7294."), "probability": 0.9}
        for cache in memory.CACHES
        for depth in memory.DEPTHS
    ]  # fmt: skip
    fluency = [{"cache": cache, "ppl_document": ppl.get(cache, 10.0)} for cache in memory.CACHES]
    return Evidence({"memory": made_result(memory.TASK, {"answers": rows, "fluency": fluency})})


def test_memory():
    forgot = memory_evidence({("sinks", "10"): "the key is 1234"}, {"sinks": 11.5})
    assert best("memory", "early", forgot) == "no"
    assert best("memory", "packed", forgot) == "yes"
    assert best("memory", "fluent", forgot) == "worse"
    assert best("memory", "early", memory_evidence({}, {})) == "yes"
    assert best("memory", "fluent", memory_evidence({}, {"sinks": 40.0})) == "collapse"
    assert best("memory", "packed", memory_evidence({("quantized", "10"): "729"}, {})) == "no"


def bits_evidence(key=0.04, value=0.004, four=0.05, two=1.0, layers=None):
    def rows(both):
        kls = (0.0001, value, key, both)
        usual = {"pair_ppl_change": 0.1, "key_error": 0.1, "value_error": 0.1}
        return [{"scheme_name": str(i), "kl": kl} | usual for i, kl in enumerate(kls)]

    curve = np.asarray(layers if layers is not None else [0.01] * 20 + [1.0] + [0.01] * 9)
    return Evidence(
        {
            bits.FOUR.name: made_result(bits.FOUR, {"key-or-value": rows(four)}),
            bits.TWO.name: made_result(bits.TWO, {"key-or-value": rows(two)}),
            bits.LAYERS.name: made_result(bits.LAYERS, {"first-layer": [{"layer": 0}]}, arrays={"kl": curve}),
        }
    )


def test_bits():
    assert best("bits", "side", bits_evidence()) == "key"
    assert best("bits", "side", bits_evidence(key=0.004, value=0.04)) == "value"
    assert best("bits", "side", bits_evidence(key=0.01, value=0.01)) == "same"
    assert best("bits", "halving", bits_evidence()) == "far"
    assert best("bits", "halving", bits_evidence(two=0.4)) == "ten"
    assert best("bits", "halving", bits_evidence(two=0.1)) == "twice"
    assert best("bits", "layer", bits_evidence()) == "last"
    assert best("bits", "layer", bits_evidence(layers=[1.0] + [0.01] * 29)) == "first"
    assert best("bits", "layer", bits_evidence(layers=[0.01] * 15 + [1.0] + [0.01] * 14)) == "middle"
    assert best("bits", "layer", bits_evidence(layers=[0.1] * 30)) == "alike"


def test_scales():
    evidence = caches_evidence(
        scales.TASK,
        {"int4-minmax": {"pair_bits": 4.5, "cache_bits": 9.0}, "int4-g16-m32": {"pair_bits": 8.0}},
    )
    assert best("scales", "minmax", evidence) == 4.5
    assert best("scales", "tiny", evidence) == 8.0
    assert best("scales", "whole", evidence) == "far"
    near = caches_evidence(scales.TASK, {"int4-minmax": {"pair_bits": 4.5, "cache_bits": 4.6}})
    assert best("scales", "whole", near) == "same"


def test_offload():
    moved = {"device_bytes": 200, "host_bytes": 300}
    evidence = caches_evidence(offload.TASK, {"k8v4-host": moved})
    assert best("offload", "total", evidence) == "same"
    assert best("offload", "device", evidence) == "part"
    assert best("offload", "words", evidence) == "same"
    other = caches_evidence(offload.TASK, {"k8v4-host": {"cache_bytes": 200, "device_bytes": 20, "kl": 0.02}})
    assert best("offload", "total", other) == "less"
    assert best("offload", "device", other) == "nothing"
    assert best("offload", "words", other) == "worse"


def test_budget():
    kls = {"sinks": 0.2, "window": 0.7, "k8v4": 0.002, "k4v8": 0.03, "kivi-4": 0.005, "kivi-2": 0.16}
    rows = {name: {"kl": kl, "of_full": 0.28} for name, kl in kls.items()}
    rows |= {"full": {"kl": 0.0, "of_full": 1.0}, "k8v8": {"kl": 0.0001, "of_full": 0.33}}
    evidence = caches_evidence(budget.TASK, rows)
    (question,) = lesson("budget").questions
    scores = question.scores(evidence)
    assert scores["full"] is None
    assert scores["k8v8"] is None
    assert scores["k8v4"] == 1
    assert scores["window"] == pytest.approx(0)
    assert scores["k4v8"] == pytest.approx(1 - math.log(15) / math.log(350))
    assert check(question, "k8v4", evidence).kind == "right"
    assert check(question, "k8v8", evidence).score == 0
    none = caches_evidence(budget.TASK, {name: {"of_full": 0.9} for name in budget.CACHES})
    assert check(question, "k8v4", none).truth.best == ""
