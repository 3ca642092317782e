"""RMSNorm and SwiGLU against plain torch."""

import pytest
import torch

from kernels.rms_norm import rms_norm
from kernels.rms_norm.reference import rms_norm_reference
from kernels.swiglu import swiglu
from kernels.swiglu.reference import swiglu_reference
from tests.kernels.tolerance import TOLERANCE, relative_error

ROWS = (1, 2, 63, 100)
DTYPES = tuple(TOLERANCE)


def random(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)) * 3).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [16, 576, 40])
@pytest.mark.parametrize("rows", ROWS)
def test_rms_norm_equals_the_reference(rows: int, size: int, dtype: torch.dtype) -> None:
    x, weight = random(rows, size, dtype), random(1, size, torch.float32)[0]
    out = rms_norm(x, weight, 1e-5)
    assert out.dtype == dtype
    assert relative_error(out, rms_norm_reference(x, weight, 1e-5)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [16, 1536, 40])
@pytest.mark.parametrize("rows", ROWS)
def test_swiglu_equals_the_reference(rows: int, size: int, dtype: torch.dtype) -> None:
    gate_up = random(rows, 2 * size, dtype)
    out = swiglu(gate_up)
    assert out.shape == (rows, size)
    assert relative_error(out, swiglu_reference(gate_up)) < TOLERANCE[dtype]


def test_swiglu_of_huge_gates_stays_finite() -> None:
    gates = torch.tensor([1e4, -1e4, 1e30, -1e30] * 4)
    out = swiglu(torch.cat((gates, torch.ones(16)))[None])
    assert torch.allclose(out, gates.clamp(min=0)[None], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("rows", ROWS)
def test_a_row_gets_the_same_bits_in_any_company(rows: int) -> None:
    x, weight = random(rows, 576, torch.bfloat16), random(1, 576, torch.float32)[0]
    alone = torch.cat([rms_norm(row[None], weight, 1e-5) for row in x])
    assert torch.equal(rms_norm(x, weight, 1e-5), alone)
    assert torch.equal(swiglu(x), torch.cat([swiglu(row[None]) for row in x]))
