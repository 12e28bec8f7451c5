"""What a reader of sealed blocks gets: the same view from one block to the next, and no old memory."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from kvviz.attention import Codes, Kernel, kernel_build
from kvviz.cache.pieces import Space
from kvviz.cache.sealed import SealedSide
from kvviz.models.sources import cache_folder
from kvviz.offload import DeviceStore
from kvviz.quant import make_quantizer
from kvviz.quant_config import QuantConfig

CPU = torch.device("cpu")


class Counted(Kernel):
    """The kernel, and how often it restored."""

    restored = 0

    def restore(self, codes: Codes, channels: int) -> torch.Tensor:
        self.restored += 1
        return super().restore(codes, channels)


def side(spec: str = "int8:token:g16:absmax", kernel: Kernel | None = None) -> SealedSide:
    config = QuantConfig.parse(spec)
    quantizer = make_quantizer(config, head_dim=16, block_size=4, dtype=torch.float32)
    return SealedSide(quantizer, [Space(DeviceStore(CPU), None)], first=0, kernel=kernel)


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


@pytest.mark.parametrize(
    "spec", ["int8:token:g16:absmax", "int4:channel:g4:minmax", "int3:head:absmax", "none"]
)
def test_with_a_kernel_the_same_values_are_read(spec):
    built = kernel_build(cache_folder() / "kernels").wait()
    if built.library is None:
        pytest.skip(built.sentence())
    counted = Counted(built.library)
    eager, compiled = side(spec), side(spec, counted)
    values = torch.randn(1, 2, 200, 16, generator=torch.Generator().manual_seed(1))
    for own in (eager, compiled):
        own.seal(values, 0)
    for start, stop in ((0, 200), (4, 8), (100, 196)):
        expected = eager.read(start, stop, CPU, torch.float32)
        torch.testing.assert_close(
            compiled.read(start, stop, CPU, torch.float32), expected, rtol=2e-7, atol=2e-7
        )
    assert counted.restored == (0 if spec == "none" else 3)
