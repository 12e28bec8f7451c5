"""The token strip: tiers by position, the newest token, bits from the ledger, size."""

import json

import numpy as np
import pytest

from kvviz.config import CacheConfig, Middle
from kvviz.figures.strip import SHARE_UNIT, strip_data, token_strip
from kvviz.figures.theme import TIER_ORDER
from kvviz.quant_config import QuantConfig
from kvviz.record import RunRecord
from tests.builders import EVICT, make_facts, make_record, make_spans, make_state


def tiers(data: dict) -> list[str]:
    return [TIER_ORDER[code] for code in data["tiers"]]


def test_every_token_has_its_tier_and_the_newest_is_new():
    data = strip_data(make_record(8, 2))
    assert tiers(data) == ["sink"] * 2 + ["offloaded"] * 4 + ["window"] * 3 + ["new"]
    assert data["labels"][0] == "w0"
    assert data["labels"][9] == "␠w9"
    assert data["count"] == 10
    assert data["prompt"] == 8


def test_evicted_tokens_stay_in_the_strip_and_weigh_nothing():
    data = strip_data(make_record(8, 1, cache=EVICT))
    assert tiers(data)[2:5] == ["evicted"] * 3
    entry = next(e for e in data["legend"] if e["tier"] == "evicted")
    assert (entry["bits"], entry["bytes_per_token"], entry["filled"]) == (0, 0, False)


def test_earlier_steps_show_the_strip_as_it_was():
    record = make_record(8, 4)
    assert strip_data(record, 0)["count"] == 9
    assert strip_data(record, -1)["count"] == strip_data(record)["count"] == 12
    assert tiers(strip_data(record, 0))[5] == "window"


def test_bits_and_bytes_come_from_the_ledger():
    legend = {e["tier"]: e for e in strip_data(make_record(8, 2))["legend"]}
    assert legend["sink"]["bits"] == 32
    assert legend["sink"]["bytes_per_token"] == 2 * 2 * 2 * 16 * 4
    assert (
        legend["offloaded"]["bits"] == (8 + 4) / 2 + (16 + 32) / 16 / 2
    )  # codes, K scale, V scale and minimum
    assert legend["offloaded"]["locations"] == ["host"]
    assert legend["new"]["bits"] is None
    assert legend["new"]["bytes_text"] == "–"


def test_received_has_no_entry_for_the_newest_token():
    record = make_record(8, 3)
    data = strip_data(record)
    assert len(data["received"]) == data["count"] - 1
    np.testing.assert_allclose(np.array(data["received"]) * SHARE_UNIT, record.received[-1], atol=SHARE_UNIT)


def test_before_the_first_token_nothing_is_claimed():
    record = make_record(8, 0, end=None)
    record.prefill_tokens = 5
    data = strip_data(record)
    assert tiers(data) == ["unknown"] * 5 + ["new"] * 3
    assert data["received"] == []
    assert data["step"] is None


def test_an_empty_record_says_so():
    data = strip_data(RunRecord())
    assert data["count"] == 0
    assert data["empty"]
    assert token_strip(RunRecord()).labels == ()


def test_labels_are_plain_text_and_short():
    record = make_record(8, 1)
    record.labels[0] = record.labels[0]._replace(display="<img src=x onerror=alert(1)>" * 3)
    label = strip_data(record)["labels"][0]
    assert label.startswith("<img src=x")
    assert len(label) == 24


@pytest.mark.parametrize("middle", [Middle.QUANTIZE, Middle.EVICT])
def test_8192_tokens_stay_under_200_kb(middle):
    side = QuantConfig.parse("int8:token:g16:absmax")
    cache = CacheConfig(4, 128, middle, 64, side, side)
    facts = make_facts(1, 1, 1, 16)
    record = make_record(8, 1, cache=cache, facts=facts)
    row = np.random.default_rng(0).dirichlet(np.ones(8192)).astype(np.float32)[None, None]
    state = make_state(cache, facts, row, 8192)
    record.prompt_ids = list(range(8192))
    record.labels = [record.labels[0]._replace(display=f"␠word{i}") for i in range(8193)]
    record.spans, record.memory, record.received = [state.spans], [state.memory], [state.received]
    assert state.spans == make_spans(cache, 8192)
    data = strip_data(record)
    assert data["count"] == 8193
    assert len(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()) < 200_000
