"""Keys and values of the tokens that were computed."""

import mmap
from math import prod
from typing import NamedTuple, Protocol

import numpy as np
import torch

from kernels.arrays import DTYPES, array


class KvShape(Protocol):
    """What the cache needs to know of a model's config."""

    @property
    def layers(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...


# Attention reads whole units of this many tokens, so that its matrix products have few shapes: for
# each new one oneDNN builds a kernel, 0.5 ms, which every token would pay anew.
UNIT_TOKENS = 64


class LayerKv(NamedTuple):
    """[slots, kv_heads, capacity, head_dim] each. The CPU kernel keeps a unit's keys transposed
    (`kernels/attention`), so whoever moves them moves whole units."""

    keys: torch.Tensor  # rotated already
    values: torch.Tensor


class KvCache:
    """One contiguous stretch per slot and head, so that attention reads a view and copies nothing.

    Of each slot, with `start` and `columns` of its row in a pass:

        [0, start)                 readable by attention
        [start, start + columns)   written by the pass, then readable by it
        [start + columns, unit)    up to the end of the unit: read with weight 0, so always finite
        [unit, capacity)           never read; memory is committed when it is first written
    """

    def __init__(
        self,
        shape: KvShape,
        *,
        slots: int,
        max_context: int,
        dtype: torch.dtype,
        device: torch.device,
        drafter_layers: int = 0,
    ) -> None:
        """`drafter_layers` more, behind the model's, are the neural drafter's own."""
        self.slots = slots
        self.max_context = max_context
        capacity = whole_units(max_context)
        size = (slots, shape.kv_heads, capacity, shape.head_dim)
        self.drafter_layers = drafter_layers
        self.layers = tuple(
            LayerKv(zeros(size, dtype, device), zeros(size, dtype, device))
            for _ in range(shape.layers + drafter_layers)
        )
        # of the same memory, for models that run on kernels alone
        self.arrays: tuple[tuple[np.ndarray, np.ndarray], ...] = ()
        if device.type == "cpu" and dtype in DTYPES:
            self.arrays = tuple((array(keys), array(values)) for keys, values in self.layers)
        self.bytes_per_token = (
            2 * len(self.layers) * shape.kv_heads * shape.head_dim * dtype.itemsize
        )

    def copy(self, source: int, target: int, tokens: int) -> None:
        """The first `tokens` positions of slot `source`, and what fills their last unit, into slot
        `target`."""
        here = slice(0, whole_units(tokens))
        for layer in self.layers:
            for part in layer:
                part[target, :, here] = part[source, :, here]


def whole_units(tokens: int) -> int:
    return -(-tokens // UNIT_TOKENS) * UNIT_TOKENS


def zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros whose memory is committed when it is first written (on a CPU)."""
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    # the operating system's own, uncommitted; torch's are written at once
    memory = mmap.mmap(-1, max(1, prod(size) * dtype.itemsize))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # a huge page would commit, and clear, most of a slot with its first token: 0.3 s
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    raw = np.frombuffer(memory, dtype=np.uint8, count=prod(size) * dtype.itemsize)
    return torch.from_numpy(raw).view(dtype).view(size)
