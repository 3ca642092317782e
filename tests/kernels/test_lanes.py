"""Single operations of the lanes, against numpy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from kernels.arrays import array
from kernels.compiled import Kernel
from kernels.exponential import exponential
from kernels.lanes import (
    WIDTH,
    Array,
    before,
    fma,
    get,
    largest,
    load,
    put,
    splat,
    store,
    total,
)

F = np.float32


@Kernel
def exponentials(x: Array, out: Array) -> None:
    for i in range(0, x.size, WIDTH):
        store(out, i, exponential(load(x, i)))


@Kernel
def copy(x: Array, out: Array) -> None:
    for i in range(0, x.size, WIDTH):
        store(out, i, load(x, i))


@Kernel
def copy_singly(x: Array, out: Array) -> None:
    for i in range(x.size):
        put(out, i, get(x, i))


@Kernel
def folds(x: Array, count: int, out: Array) -> None:
    kept = before(load(x, 0), count, splat(F(-1.0)))
    put(out, 0, total(kept))
    put(out, 1, largest(kept))


@Kernel
def fused(x: Array, out: Array) -> None:
    store(out, 0, fma(load(x, 0), load(x, 16), load(x, 32)))


def test_the_exponential_is_good_to_two_in_ten_million() -> None:
    x = np.linspace(-86.9, 87.9, 16_000, dtype=F)
    out = np.full_like(x, np.nan)
    exponentials(0, x, out)
    exact = np.exp(x.astype(np.float64))
    assert np.abs(out / exact - 1).max() < 2e-7


def test_the_exponential_of_very_little_is_nothing_and_of_nothing_is_one() -> None:
    x = np.array([-87.1, -1e30, -np.inf, 0.0, -0.0, 88.0, 1e30, np.inf] * 2, F)
    out = np.full_like(x, np.nan)
    exponentials(0, x, out)
    assert out[:5].tolist() == [0, 0, 0, 1, 1]
    assert out[5:8].tolist() == [out[5]] * 3
    assert np.isfinite(out[5])


@pytest.mark.parametrize("copying", [copy, copy_singly])
def test_bfloat16_is_rounded_as_torch_does(copying: Callable[..., None]) -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 100
    ties = torch.arange(64, dtype=torch.float32) / 128 + 1  # half of them between two bfloat16
    x = torch.cat((x, ties, torch.tensor([0.0, -0.0, torch.inf, -torch.inf] * 4)))
    out = torch.full_like(x, torch.nan, dtype=torch.bfloat16)
    copying(0, array(x), array(out))
    assert torch.equal(out, x.bfloat16())
    back = torch.full_like(x, torch.nan)
    copying(0, array(out), array(back))
    assert torch.equal(back, out.float())


@pytest.mark.parametrize("count", [-3, 0, 1, 7, 16, 40])
def test_only_the_first_lanes_are_kept(count: int) -> None:
    x, out = np.arange(1, 17, dtype=F), np.full(2, np.nan, F)
    folds(0, x, count, out)
    kept = np.where(np.arange(16) < count, x, F(-1))
    assert out.tolist() == [kept.sum(), kept.max()]


def test_fma_rounds_once() -> None:
    x = np.concatenate((np.full(16, 1 + 2.0**-12), np.full(16, 1 + 2.0**-12), np.full(16, -1)))
    out = np.full(16, np.nan, F)
    fused(0, x.astype(F), out)
    assert out.tolist() == [2.0**-11 + 2.0**-24] * 16
