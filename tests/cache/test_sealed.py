"""What a reader of sealed blocks gets: the same view from one block to the next, and no old memory."""

from __future__ import annotations

import gc
import weakref

import torch

from kvviz.attention import Codes
from kvviz.cache.pieces import Space
from kvviz.cache.sealed import SealedSide
from kvviz.offload import DeviceStore
from kvviz.quant import make_quantizer
from kvviz.quant_config import QuantConfig

CPU = torch.device("cpu")


def side() -> SealedSide:
    quantizer = make_quantizer(
        QuantConfig.parse("int8:token:g16:absmax"), head_dim=16, block_size=4, dtype=torch.float32
    )
    return SealedSide(quantizer, [Space(DeviceStore(CPU), None)], first=0)


def test_a_view_is_kept_until_a_block_comes_and_then_frees_what_it_held():
    own, values = side(), torch.randn(1, 2, 40, 16, generator=torch.Generator().manual_seed(0))
    own.seal(values[:, :, :4], 0)
    first = own.stored(0, 4, CPU)
    assert isinstance(first, Codes)
    assert own.stored(0, 4, CPU) is first
    held = weakref.ref(first.data)
    del first
    gc.collect()
    assert held() is not None
    own.seal(values[:, :, 4:], 4)
    gc.collect()
    assert held() is None, "the old buffer is free as soon as a larger one took its place"
    both = own.stored(0, 40, CPU)
    assert isinstance(both, Codes)
    restored = (both.data.float() - both.offset) * both.scale.float()
    assert torch.equal(restored, own.read(0, 40, CPU, torch.float32))
