"""Four lanes, 64 numbers side by side: the width of a kernel's innermost loops."""

from kernels.compiled import inlined
from kernels.lanes import Array, Lanes, load, store
from kernels.pairs import Pairs, dot, load_pairs

Four = tuple[Lanes, Lanes, Lanes, Lanes]


@inlined
def load_four(array: Array, at: int) -> Four:
    return load(array, at), load(array, at + 16), load(array, at + 32), load(array, at + 48)


@inlined
def store_four(array: Array, at: int, a: Lanes, b: Lanes, c: Lanes, d: Lanes) -> None:
    store(array, at, a)
    store(array, at + 16, b)
    store(array, at + 32, c)
    store(array, at + 48, d)


@inlined
def load_four_pairs(array: Array, at: int) -> tuple[Pairs, Pairs, Pairs, Pairs]:
    return (
        load_pairs(array, at),
        load_pairs(array, at + 32),
        load_pairs(array, at + 64),
        load_pairs(array, at + 96),
    )


@inlined
def dot_four(
    s0: Lanes, s1: Lanes, s2: Lanes, s3: Lanes, x: Pairs, w0: Pairs, w1: Pairs, w2: Pairs, w3: Pairs
) -> Four:
    return dot(s0, x, w0), dot(s1, x, w1), dot(s2, x, w2), dot(s3, x, w3)
