"""Products of bf16 rows with panels of 64 outputs' weights."""

import numpy as np
from numba import prange

from kernels.compiled import Kernel, inlined
from kernels.fours import Four, dot_four, load_four, load_four_pairs
from kernels.lanes import Array, Lanes, add, splat
from kernels.pairs import fetch, splat_pair, store_rounded

PANEL = 64  # outputs
# From so many rows on a panel is computed with for long enough that the next one can be fetched
# meanwhile. With fewer the memory sets the pace, and the first four rows fetch their own panel a
# little ahead; a single row is left to the processor, which does that better.
WIDE = 13
AHEAD = 16 * 2 * PANEL
F = np.float32


@Kernel
def multiply(
    x: Array, panels: Array, bias: Array, residual: Array, stride: int, out: Array
) -> None:
    """x bf16 [T, size]; panels bf16 [P, size / 2, 64, 2]; bias fp32 [P * 64]; out [T, P * 64].
    Unless `stride` is 0, `residual` is added too: row t of it begins at t * stride.

    A row's sums run over the pairs in order, whatever rows it shares the panel's loads with.
    """
    rows, size = x.shape
    width = out.shape[1]
    step = 2 * PANEL // -(-rows // 4) if rows >= WIDE else 0  # of the next panel, a pair
    for panel in prange(len(panels)):
        start, column = panel * size * PANEL, panel * PANEL
        for t in range(0, rows, 4):
            last = min(t + 3, rows - 1)
            if last == t:
                a0, a1, a2, a3 = _one(x, t * size, panels, start, size)
                _end(a0, a1, a2, a3, bias, residual, stride, out, t, column, width)
                continue
            # up to two rows are computed twice
            b, c = t + 1, min(t + 2, last)
            next_part = start + size * PANEL + t // 4 * (size // 2) * step
            a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3 = _four(
                x,
                t * size,
                b * size,
                c * size,
                last * size,
                panels,
                start,
                size,
                next_part,
                step,
                t == 0 and step == 0,
            )
            _end(a0, a1, a2, a3, bias, residual, stride, out, t, column, width)
            _end(b0, b1, b2, b3, bias, residual, stride, out, b, column, width)
            _end(c0, c1, c2, c3, bias, residual, stride, out, c, column, width)
            _end(d0, d1, d2, d3, bias, residual, stride, out, last, column, width)


@inlined
def _one(x: Array, a: int, panels: Array, start: int, size: int) -> Four:
    a0 = a1 = a2 = a3 = splat(F(0.0))
    for d in range(0, size, 2):
        at = start + d * PANEL
        w0, w1, w2, w3 = load_four_pairs(panels, at)
        a0, a1, a2, a3 = dot_four(a0, a1, a2, a3, splat_pair(x, a + d), w0, w1, w2, w3)
    return a0, a1, a2, a3


@inlined
def _four(
    x: Array,
    a: int,
    b: int,
    c: int,
    d: int,
    panels: Array,
    start: int,
    size: int,
    next_part: int,
    step: int,
    first: bool,
) -> tuple[Lanes, ...]:
    """Sixteen sums at once: four rows share each load of the panel. On the way, wide passes fetch
    a part of the next panel with each four, narrow ones the panel itself with the `first`."""
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = splat(F(0.0))
    c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = splat(F(0.0))
    for i in range(0, size, 2):
        at = start + i * PANEL
        w0, w1, w2, w3 = load_four_pairs(panels, at)
        if step:
            fetch(panels, next_part + i // 2 * step)
        elif first:
            fetch(panels, at + AHEAD)
            fetch(panels, at + AHEAD + 32)
            fetch(panels, at + AHEAD + 64)
            fetch(panels, at + AHEAD + 96)
        a0, a1, a2, a3 = dot_four(a0, a1, a2, a3, splat_pair(x, a + i), w0, w1, w2, w3)
        b0, b1, b2, b3 = dot_four(b0, b1, b2, b3, splat_pair(x, b + i), w0, w1, w2, w3)
        c0, c1, c2, c3 = dot_four(c0, c1, c2, c3, splat_pair(x, c + i), w0, w1, w2, w3)
        d0, d1, d2, d3 = dot_four(d0, d1, d2, d3, splat_pair(x, d + i), w0, w1, w2, w3)
    return a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3


@inlined
def _end(
    s0: Lanes,
    s1: Lanes,
    s2: Lanes,
    s3: Lanes,
    bias: Array,
    residual: Array,
    stride: int,
    out: Array,
    row: int,
    column: int,
    width: int,
) -> None:
    b0, b1, b2, b3 = load_four(bias, column)
    s0, s1, s2, s3 = add(s0, b0), add(s1, b1), add(s2, b2), add(s3, b3)
    if stride:
        r0, r1, r2, r3 = load_four(residual, row * stride + column)
        s0, s1, s2, s3 = add(s0, r0), add(s1, r1), add(s2, r2), add(s3, r3)
    at = row * width + column
    store_rounded(out, at, s0)
    store_rounded(out, at + 16, s1)
    store_rounded(out, at + 32, s2)
    store_rounded(out, at + 48, s3)
