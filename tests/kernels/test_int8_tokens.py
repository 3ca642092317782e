"""Bytes with a scale a row against plain torch: the levels are the same to the last one."""

import pytest
import torch

from kernels.int8_tokens import quantised, restored
from kernels.int8_tokens.reference import quantised_reference, restored_reference
from tests.kernels.tolerance import TOLERANCE, relative_error

ROWS = (1, 2, 63, 100)
SIZES = (16, 576, 1536, 40)


def random(rows: int, size: int, seed: int = 0) -> torch.Tensor:
    numbers = torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))
    return (numbers * torch.logspace(-4, 4, rows)[:, None]).bfloat16()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", ROWS)
def test_levels_and_steps_equal_the_reference(rows: int, size: int) -> None:
    x = random(rows, size)
    levels, steps = quantised(x)
    wanted, wanted_steps = quantised_reference(x)
    assert torch.equal(levels, wanted)
    assert torch.equal(steps, wanted_steps)
    back = (levels.float() - 128) * steps
    # half a step, and what the step itself was rounded by
    assert ((back - x.float()).abs() <= 0.501 * steps).all()


def test_a_row_reaches_its_last_level_and_zeros_stay_zeros() -> None:
    x = torch.zeros(3, 32, dtype=torch.bfloat16)
    x[0, 5], x[0, 6], x[2, 0] = 3.0, -3.0, 1e-38
    levels, steps = quantised(x)
    assert levels[0, 5:7].tolist() == [255, 1]
    assert (levels[1] == 128).all()
    assert torch.isfinite(steps).all()


@pytest.mark.parametrize("has_base", [True, False])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", ROWS)
def test_products_come_back_as_in_the_reference(rows: int, size: int, has_base: bool) -> None:
    products = random(rows, size, seed=1).float() * 1000
    steps = torch.rand((rows, 1), generator=torch.Generator().manual_seed(2))
    base = random(rows, size, seed=3) if has_base else None
    out = restored(products, steps, base)
    assert out.dtype == torch.bfloat16
    wanted = restored_reference(products, steps, base)
    assert relative_error(out, wanted) < TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("rows", ROWS)
def test_a_row_gets_the_same_bits_in_any_company(rows: int) -> None:
    x = random(rows, 576)
    alone = [quantised(row[None]) for row in x]
    levels, steps = quantised(x)
    assert torch.equal(levels, torch.cat([part for part, _ in alone]))
    assert torch.equal(steps, torch.cat([part for _, part in alone]))
    products = levels.float()
    singly = [
        restored(p[None], s[None], b[None]) for p, s, b in zip(products, steps, x, strict=True)
    ]
    assert torch.equal(restored(products, steps, x), torch.cat(singly))
