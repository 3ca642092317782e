"""RMSNorm of each row; a row's squares are summed in sixteen lanes."""

import numpy as np
from numba import prange

from kernels.compiled import Kernel
from kernels.lanes import WIDTH, Array, fma, load, mul, splat, store, total

F = np.float32


@Kernel
def normalise(x: Array, weight: Array, eps: float, out: Array) -> None:
    """x and out [T, size], weight fp32 [size]; size is a multiple of 16."""
    rows, size = x.shape
    for row in prange(rows):
        start = row * size
        squares = splat(F(0.0))
        for i in range(0, size, WIDTH):
            here = load(x, start + i)
            squares = fma(here, here, squares)
        scale = splat(F(1.0) / np.sqrt(total(squares) / F(size) + F(eps)))
        for i in range(0, size, WIDTH):
            store(out, start + i, mul(mul(load(x, start + i), scale), load(weight, i)))
