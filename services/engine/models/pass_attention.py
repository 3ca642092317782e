"""The attention of one pass: by the CPU kernel where it fits, in plain torch elsewhere."""

from typing import Protocol

import numpy as np
import torch

from kernels import attention
from services.engine.batch import RowSpan
from services.engine.models.attention import BLOCK_COLUMNS, TorchAttention
from services.engine.models.config import LlamaConfig
from services.engine.models.rope import Rope


class PassAttention(Protocol):
    """The rows of one pass; they attend in every layer.

    qkv is [>= T, (heads + 2 * kv_heads) * head_dim], not rotated; keys and values are a `LayerKv`.
    """

    def attend(self, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Stores, then attends: [>= T, heads * head_dim]."""
        ...

    def store(self, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> object:
        """Writes keys and values into the rows' slots."""
        ...


class Attention:
    """What all passes of a model share."""

    def __init__(
        self, config: LlamaConfig, rope: Rope, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._config = config
        self._rope = rope
        self._dtype = dtype
        self._by_kernel = attention.fits(config.head_dim, dtype, device)

    def of_pass(
        self, rows: tuple[RowSpan, ...], positions: torch.Tensor, *, exact: bool
    ) -> PassAttention:
        """Of `rows`, whose columns stand at `positions` int64 [T].

        With `exact` a column gets the same bits in every pass; the kernel does that always.
        """
        angles = self._rope.angles(positions)
        if not self._by_kernel:
            return TorchAttention(rows, angles, self._config, self._dtype, exact=exact)
        slots = np.repeat([row.slot for row in rows], [row.columns for row in rows])
        columns = np.stack((slots, positions.numpy()), axis=1)
        blocks = [
            (
                row.slot,
                row.start + first,
                min(BLOCK_COLUMNS, row.columns - first),
                row.offset + first,
            )
            for row in rows
            for first in range(0, row.columns, BLOCK_COLUMNS)
        ]
        return attention.PassAttention(
            columns,
            np.array(blocks),
            angles.cos,
            angles.sin,
            heads=self._config.heads,
            dtype=self._dtype,
        )
