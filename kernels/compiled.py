"""How CPU kernels are compiled: by numba, when first called, and kept on disk for later."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def _digest() -> str:
    """Of all kernels' sources. numba compares a cached kernel with its own file alone, and would
    not notice a change in a function that it inlines from another."""
    folder = Path(__file__).parent
    sources = b"".join(path.read_bytes() for path in sorted(folder.rglob("*.py")))
    return hashlib.blake2b(sources, digest_size=6).hexdigest()


DIGEST = _digest()
# Kernels that each start compiles anew, and why: a cache that cannot be read or written.
not_kept: dict[str, str] = {}
# One core does a million in 10 to 20 us; waking others takes as long.
SHARED_OPERATIONS = 1 << 22


def inlined(function: Function) -> Function:
    """For functions that kernels call."""
    compiled: Function = numba.njit(inline="always")(function)  # type: ignore[assignment]
    return compiled


class Kernel:
    """A function of arrays and numbers whose `prange` loops may run on as many threads as torch."""

    def __init__(self, function: Callable[..., None]) -> None:
        # the cache's file is named for it
        function.__qualname__ += f"-{DIGEST}"
        self._function = function
        self._compiled = {shared: _kept(function, shared) for shared in (False, True)}

    def __call__(self, operations: int, *arguments: Any) -> None:
        """`operations`: about how many multiplications the work takes; little is not shared."""
        threads = torch.get_num_threads()
        shared = threads > 1 and operations >= SHARED_OPERATIONS
        if shared:
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
        try:
            self._compiled[shared](*arguments)
        except Exception as exc:  # noqa: BLE001 whatever a damaged file or full disk makes numba raise
            # a fault of the kernel's own comes up again here
            self._compiled[shared] = _unkept(self._function, shared, exc)
            self._compiled[shared](*arguments)


def _kept(function: Callable[..., None], shared: bool) -> Callable[..., None]:
    # Fast-math stays off: bits would depend on what LLVM chooses to fuse and to reorder.
    try:
        return numba.njit(cache=True, parallel=shared, nogil=True)(function)
    except RuntimeError as exc:  # no folder to write to
        return _unkept(function, shared, exc)


def _unkept(function: Callable[..., None], shared: bool, why: Exception) -> Callable[..., None]:
    """Compiled at each start."""
    name = f"{function.__module__}.{function.__name__}"
    not_kept[name] = f"{type(why).__name__}: {why}"
    return numba.njit(parallel=shared, nogil=True)(function)
