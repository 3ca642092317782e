"""Makes the wall clock of every Python process useless that finds this file on its path.

Each reading is up to three years off, forwards or backwards; the monotonic clock is left alone.
"""

import random
import time

YEARS_NS = 3 * 365 * 24 * 3600 * 10**9
_right_ns = time.time_ns


def jumping_ns() -> int:
    return _right_ns() + random.randint(-YEARS_NS, YEARS_NS)


def jumping() -> float:
    return jumping_ns() / 1e9


time.time_ns = jumping_ns
time.time = jumping
