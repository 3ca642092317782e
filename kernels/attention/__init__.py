"""Causal attention of a pass whose rows keep their keys and values in slots, for CPUs.

Keys and values of a layer are each [slots, kv_heads, capacity, head_dim] by size, with `capacity` a
multiple of a unit of 64 tokens. Values lie as that says. Keys lie transposed within each unit,
[head_dim, 64] in place of [64, head_dim], so that a query meets sixteen tokens at a time. Where
`kernels/pair_attention` serves, a unit lies as it says.

A column's result does not depend on what else is in the pass, to the bit: units begin at fixed
positions, and each query goes through them alone.
"""

import numpy as np
import torch

from kernels import pair_attention
from kernels.arrays import DTYPES, Rows, array, empty
from kernels.attention import kernel
from kernels.lanes import WIDTH
from kernels.units import UNIT


def fits(head_dim: int, dtype: torch.dtype, device: torch.device) -> bool:
    return device.type == "cpu" and not head_dim % WIDTH and dtype in DTYPES


class PassAttention:
    """The columns of one pass; they attend in every layer."""

    def __init__(
        self,
        columns: np.ndarray,
        blocks: np.ndarray,
        cos: torch.Tensor,
        sin: torch.Tensor,
        *,
        heads: int,
        dtype: torch.dtype,
    ) -> None:
        """
        Args:
            columns: int64 [T, 2], slot and position of each column.
            blocks: int64 [B, 4], slot, first position, number and first index of columns that stand
                side by side. Blocks of one pass may run on different threads.
            cos, sin: fp32 [T, head_dim / 2], of the columns' positions.
            dtype: of what is computed and kept.
        """
        self._columns = columns
        self._blocks = blocks
        self._cos, self._sin = array(cos), array(sin)
        self._heads = heads
        by_pairs = pair_attention.fits(dtype)
        self._kernel = pair_attention if by_pairs else kernel
        size = (len(columns), heads * 2 * cos.shape[1])
        self._query = np.empty(size, np.uint16 if by_pairs else np.float32)
        self._known: np.ndarray | None = None
        self.products = 2 * size[1] * int(columns[:, 1].sum())

    def store(self, qkv: Rows, keys: Rows, values: Rows) -> None:
        """Writes rotated keys, and values, of qkv [>= T, (heads + 2 * kv_heads) * head_dim]."""
        self._place(array(qkv), array(keys), array(values))

    def attend(self, qkv: Rows, keys: Rows, values: Rows) -> Rows:
        """Stores, then attends: [rows of qkv, heads * head_dim]; rows beyond T hold anything."""
        where = (array(keys), array(values))
        self._place(array(qkv), *where)
        out = empty(qkv, len(qkv), self._query.shape[1])
        sizes = self._sizes(where[0])
        self._kernel.attend(self.products, self._query, *where, self._blocks, array(out), sizes)
        return out

    def _place(self, qkv: np.ndarray, keys: np.ndarray, values: np.ndarray) -> None:
        turned = (self._cos, self._sin, self._columns, self._query)
        self._kernel.place(2 * self._query.size, qkv, *turned, keys, values, self._sizes(keys))

    def _sizes(self, keys: np.ndarray) -> np.ndarray:
        """What every layer has in common, so made once."""
        if self._known is None:
            _, kv_heads, capacity, head_dim = keys.shape
            assert capacity % UNIT == 0
            self._known = np.array((self._heads, kv_heads, head_dim, capacity))
        return self._known
