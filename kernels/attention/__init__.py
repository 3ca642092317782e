"""Causal attention of a pass whose rows keep their keys and values in slots, for CPUs.

Keys and values of a layer are each [slots, kv_heads, capacity, head_dim] by size, with `capacity` a
multiple of a unit of 64 tokens. Values lie as that says. Keys lie transposed within each unit,
[head_dim, 64] in place of [64, head_dim], so that a query meets sixteen tokens at a time.

A column's result does not depend on what else is in the pass, to the bit: units begin at fixed
positions, and each query goes through them alone.
"""

import numpy as np
import torch

from kernels.arrays import DTYPES, array
from kernels.attention.kernel import UNIT, attend, place
from kernels.lanes import WIDTH


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
    ) -> None:
        """
        Args:
            columns: int64 [T, 2], slot and position of each column.
            blocks: int64 [B, 4], slot, first position, number and first index of columns that stand
                side by side. Blocks of one pass may run on different threads.
            cos, sin: fp32 [T, head_dim / 2], of the columns' positions.
        """
        self._columns = columns
        self._blocks = blocks
        self._cos, self._sin = array(cos), array(sin)
        self._heads = heads
        self._query = np.empty((len(columns), heads * 2 * cos.shape[1]), np.float32)
        self.products = 2 * self._query.shape[1] * int(columns[:, 1].sum())

    def store(self, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Writes rotated keys, and values, of qkv [>= T, (heads + 2 * kv_heads) * head_dim]."""
        where = (array(keys), array(values), self._sizes(keys))
        place(
            2 * self._query.size,
            array(qkv),
            self._cos,
            self._sin,
            self._columns,
            self._query,
            *where,
        )

    def attend(self, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Stores, then attends: [rows of qkv, heads * head_dim]; rows beyond T hold anything."""
        self.store(qkv, keys, values)
        out = qkv.new_empty((len(qkv), self._query.shape[1]))
        where = (array(keys), array(values), self._blocks)
        attend(self.products, self._query, *where, array(out), self._sizes(keys))
        return out

    def _sizes(self, keys: torch.Tensor) -> np.ndarray:
        _, kv_heads, capacity, head_dim = keys.shape
        assert capacity % UNIT == 0
        return np.array((self._heads, kv_heads, head_dim, capacity))
