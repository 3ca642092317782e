"""Four lanes, 64 numbers side by side: the width of a kernel's innermost loops."""

from kernels.compiled import inlined
from kernels.lanes import Array, Lanes, load, store

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
