"""Where sealed blocks live, as text: what is understood, what is refused, what fits."""

from __future__ import annotations

import pytest
from hypothesis import given

from kvviz.config import CacheConfig, Middle, Offload, OffloadRead
from kvviz.errors import ConfigError
from kvviz.offload_config import Place, TierShare
from tests.cache.cases import offloads


@given(offload=offloads())
def test_text_and_settings_are_the_same(offload):
    assert Offload.parse(offload.spec) == offload
    cache = CacheConfig(middle=Middle.QUANTIZE, offload=offload, offload_read=OffloadRead.ON_HOST)
    assert CacheConfig.from_dict(cache.to_dict()) == cache


@pytest.mark.parametrize(
    ("written", "spec"),
    [
        ("none", "none"), (" NONE ", "none"), ("host", "host"), ("Disk", "disk"),
        ("host:64mib , disk", "host:64MiB,disk"), ("device:512T,host", "device:512t,host"),
        ("host:65536KiB,disk", "host:64MiB,disk"),
        ("device:100B,host:3GiB,disk:7t", "device:100B,host:3GiB,disk:7t"),
    ],
)  # fmt: skip
def test_what_people_write(written, spec):
    assert Offload.parse(written).spec == spec


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("", "offload_spec"), ("ram", "offload_spec"), ("host:", "offload_spec"), ("host:64", "offload_spec"),
        ("host:-1t", "offload_spec"), ("host:0t", "offload_spec"), ("host:0MiB,disk", "offload_spec"),
        ("host:1.5GiB,disk", "offload_spec"), ("host,,disk", "offload_spec"), ("none,host", "offload_spec"),
        ("disk:5t,host", "offload_order"), ("host:5t,host", "offload_order"),
        ("device", "offload_device_only"), ("device:512t", "offload_device_only"),
        ("host,disk", "offload_capacity"), ("device,disk", "offload_capacity"),
    ],
)  # fmt: skip
def test_what_is_refused(spec, code):
    with pytest.raises(ConfigError) as caught:
        Offload.parse(spec)
    assert caught.value.code == code
    if spec:
        assert spec.split(":")[0] in str(caught.value)


def test_capacities_are_whole_blocks():
    offload = Offload.parse("device:100t,host:1000B,disk")
    assert offload.capacities(32, 300) == [(Place.DEVICE, 96), (Place.HOST, 96), (Place.DISK, None)]
    assert Offload.parse("device:31t,host").capacities(32, 0) == [(Place.DEVICE, 0), (Place.HOST, None)]
    assert Offload.NONE.capacities(32, 0) == [(Place.DEVICE, None)]


def test_old_settings_read_as_before():
    """Strings of presets, records and links from before there was a disk."""
    plain = CacheConfig(middle=Middle.QUANTIZE, offload=Offload.HOST).to_dict()
    assert plain["offload"] == "host"
    assert "offload_read" not in plain
    assert Offload((TierShare(Place.HOST),)) == Offload.HOST == Offload.parse("host")
