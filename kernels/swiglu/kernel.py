"""SwiGLU, elementwise."""

import numpy as np
from numba import prange

from kernels.compiled import Kernel
from kernels.exponential import exponential
from kernels.lanes import WIDTH, Array, add, div, load, mul, splat, store, sub

F = np.float32


@Kernel
def gated(gate_up: Array, out: Array) -> None:
    """gate_up [T, 2 * size]: gates, then what passes; out [T, size]; size is a multiple of 16."""
    rows, size = out.shape
    one, zero = splat(F(1.0)), splat(F(0.0))
    for row in prange(rows):
        for i in range(0, size, WIDTH):
            gate = load(gate_up, 2 * row * size + i)
            passing = load(gate_up, (2 * row + 1) * size + i)
            silu = div(gate, add(one, exponential(sub(zero, gate))))
            store(out, row * size + i, mul(silu, passing))
