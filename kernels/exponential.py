"""The exponential of lanes."""

import numpy as np

from kernels.compiled import inlined
from kernels.lanes import Lanes, add, fma, larger, mul, rounded, scaled, smaller, splat, where_above

F = np.float32
LEAST, MOST = F(-87.0), F(88.0)  # beyond them fp32 leaves its normal range
LOG2_E = F(1.44269504)
LN2_HIGH, LN2_LOW = F(0.693359375), F(-2.12194440e-4)  # their sum is ln 2; the first is short


@inlined
def exponential(x: Lanes) -> Lanes:
    """e ** x with a relative error below 2e-7; exactly 0 below -87, and e ** 88 above 88.

    After Cephes' `expf` (Moshier 1989): a power of 2, and a polynomial for the rest.
    """
    bounded = smaller(larger(x, splat(LEAST)), splat(MOST))
    powers = rounded(mul(bounded, splat(LOG2_E)))
    rest = fma(powers, splat(-LN2_LOW), fma(powers, splat(-LN2_HIGH), bounded))
    p = splat(F(1.9875691500e-4))
    p = fma(p, rest, splat(F(1.3981999507e-3)))
    p = fma(p, rest, splat(F(8.3334519073e-3)))
    p = fma(p, rest, splat(F(4.1665795894e-2)))
    p = fma(p, rest, splat(F(1.6666665459e-1)))
    p = fma(p, rest, splat(F(5.0000001201e-1)))
    p = fma(mul(p, rest), rest, add(rest, splat(F(1.0))))
    return where_above(x, splat(LEAST), scaled(p, powers))
