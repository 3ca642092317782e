"""The bf16 linear kernel against plain torch, and bit by bit against itself."""

import pytest
import torch

from kernels.bf16_linear import Bf16Linear, fits
from kernels.bf16_linear.reference import linear_reference
from kernels.compiled import SHARED_OPERATIONS
from kernels.pairs import are_there
from tests.kernels.tolerance import TOLERANCE, relative_error

CPU = torch.device("cpu")
needs_bf16 = pytest.mark.skipif(not are_there(), reason="this CPU has no AVX512_BF16")


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(shape[0])).bfloat16()


@needs_bf16
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 63, 100])
@pytest.mark.parametrize(("outputs", "inputs"), [(64, 2), (192, 66), (576, 1536)])
def test_a_layer_equals_the_reference(rows: int, outputs: int, inputs: int) -> None:
    x, weight = random(rows, inputs), random(outputs, inputs)
    bias, residual = random(outputs), random(rows, outputs)
    bare, biased = Bf16Linear(weight), Bf16Linear(weight, bias)
    bf16, fp32 = torch.bfloat16, torch.float32
    for found, reference in (
        (bare(x), linear_reference(x, weight, None, None, bf16)),
        (biased(x), linear_reference(x, weight, bias, None, bf16)),
        (bare.onto(residual, x), linear_reference(x, weight, None, residual, bf16)),
        (biased.onto(residual, x), linear_reference(x, weight, bias, residual, bf16)),
        (bare.unrounded(x), linear_reference(x, weight, None, None, fp32)),
    ):
        assert found.dtype == reference.dtype
        assert relative_error(found, reference) < TOLERANCE[reference.dtype]


@needs_bf16
@pytest.mark.parametrize("rows", [2, 3, 4, 7, 100])
def test_a_row_gets_the_same_bits_in_any_company(rows: int) -> None:
    x, residual = random(rows, 576), random(rows, 192)
    layer = Bf16Linear(random(192, 576))
    alone = [layer.onto(residual[t : t + 1], x[t : t + 1]) for t in range(rows)]
    assert torch.equal(layer.onto(residual, x), torch.cat(alone))
    assert torch.equal(layer.unrounded(x), torch.cat([layer.unrounded(row[None]) for row in x]))


@needs_bf16
@pytest.mark.usefixtures("two_threads")
def test_threads_change_no_bit() -> None:
    x, layer = random(64, 576), Bf16Linear(random(192, 576))
    assert x.numel() * 192 > SHARED_OPERATIONS
    shared = layer.unrounded(x)
    torch.set_num_threads(1)
    assert torch.equal(shared, layer.unrounded(x))


def test_what_the_kernel_takes() -> None:
    assert fits(random(64, 32), CPU) == are_there()
    assert not fits(random(64, 33), CPU)
    assert not fits(random(65, 32), CPU)
    assert not fits(random(64, 32).float(), CPU)
    assert not fits(random(64, 32), torch.device("cuda"))
