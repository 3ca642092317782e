"""Rows to bytes with a scale each, and products of bytes back to bf16."""

import numpy as np
from numba import prange

from kernels.compiled import Kernel
from kernels.lanes import (
    WIDTH,
    Array,
    add,
    fma,
    larger,
    largest,
    load,
    mul,
    rounded,
    splat,
    store,
    store_bytes,
    sub,
)

F = np.float32
LEVELS = F(127)  # of either sign
ZERO = F(128)  # what stands for 0 in a byte without sign
TINY = F(1e-30)  # in place of the largest of a row of zeros


@Kernel
def quantise(x: Array, levels: Array, steps: Array) -> None:
    """x [T, size]; levels uint8 [T, size], steps fp32 [T, 1]; size is a multiple of 16."""
    rows, size = x.shape
    zero, middle = splat(F(0.0)), splat(ZERO)
    for row in prange(rows):
        start = row * size
        most = splat(TINY)
        for i in range(0, size, WIDTH):
            here = load(x, start + i)
            most = larger(most, larger(here, sub(zero, here)))
        top = largest(most)
        steps[row, 0] = top * (F(1.0) / LEVELS)
        scale = splat(LEVELS / top)
        for i in range(0, size, WIDTH):
            level = rounded(mul(load(x, start + i), scale))
            store_bytes(levels, start + i, add(level, middle))


@Kernel
def restore(products: Array, steps: Array, onto: Array, adds: bool, out: Array) -> None:
    """products fp32, onto (where it `adds`) and out [T, size]; steps fp32 [T, 1]."""
    rows, size = products.shape
    for row in prange(rows):
        step = splat(steps[row, 0])
        for at in range(row * size, (row + 1) * size, WIDTH):
            if adds:
                store(out, at, fma(load(products, at), step, load(onto, at)))
            else:
                store(out, at, mul(load(products, at), step))
