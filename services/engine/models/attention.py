"""Causal attention in plain torch: each row over its own slot, without copying the context.

It serves GPUs, and heads of sizes that the CPU kernel does not take (`kernels/attention`).

torch's fused kernel is the fastest for one column over a short context (54 us a layer of the demo
model over 500 tokens of bf16, one core, against 100 for plain products). It packs the context again
for every query head, so beyond that two matrix products per key head win: over 4,000 tokens 0.28 ms
against 0.60 for one column, 0.83 against 2.4 for 16, 2.8 against 7.7 for 64.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch.nn import functional

from services.engine.batch import RowSpan
from services.engine.kv import UNIT_TOKENS, whole_units
from services.engine.models.config import LlamaConfig
from services.engine.models.rope import Angles, rotate

# A wide row attends in blocks, each of which sees only what precedes it; 64 keeps a block's scores
# over a long context within the cache that cores share.
BLOCK_COLUMNS = 64
# Up to here one column uses the fused kernel.
FUSED_TOKENS = 1024


class Block(NamedTuple):
    """Up to `BLOCK_COLUMNS` columns of one row, at [offset, offset + columns) of the pass."""

    slot: int
    offset: int
    columns: int
    start: int  # position of the first column
    # [columns * group, whole_units(end) - start], added to the scores from `start` on; the fused
    # kernel needs none
    mask: torch.Tensor | None


class TorchAttention:
    """The rows of one pass; they attend in every layer."""

    def __init__(
        self,
        rows: tuple[RowSpan, ...],
        angles: Angles,
        config: LlamaConfig,
        dtype: torch.dtype,
        *,
        exact: bool,
    ) -> None:
        """With `exact` a column is computed in the same way however many stand beside it. So no
        block crosses the end of a unit: oneDNN splits sums over more than 1,024 tokens by their
        number, and columns behind the end would make a column before it sum over a unit more.
        """
        self._rows = rows
        self._angles = angles
        self._heads = config.heads
        self._group = config.heads // config.kv_heads
        self._dtype = dtype
        self._exact = exact
        self._blocks = [
            self._block(row, first, columns)
            for row in rows
            for first, columns in _cuts(row, aligned=exact)
        ]

    def store(self, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Writes keys, rotated, and values of qkv [>= T, (heads + 2 * kv_heads) * head_dim] into
        the rows' slots; the queries, rotated and scaled, [T, heads, head_dim]."""
        kv_heads, head_dim = keys.shape[1], keys.shape[3]
        columns = len(self._angles.cos)
        parts = qkv[:columns].view(columns, -1, head_dim)
        query, value = parts[:, : self._heads], parts[:, -kv_heads:]
        key = rotate(parts[:, self._heads : -kv_heads], self._angles)
        for row in self._rows:
            here, end = slice(row.offset, row.offset + row.columns), row.start + row.columns
            keys[row.slot, :, row.start : end] = key[here].transpose(0, 1)
            values[row.slot, :, row.start : end] = value[here].transpose(0, 1)
        scale: float = head_dim**-0.5
        return rotate(query, self._angles) * scale

    def attend(self, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Stores, then attends: [T, heads * head_dim]."""
        query = self.store(qkv, keys, values)
        parts = [
            _attend_block(query, block, keys[block.slot], values[block.slot])
            for block in self._blocks
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _block(self, row: RowSpan, first: int, columns: int) -> Block:
        start = row.start + first
        fused = not self._exact and columns == 1 and start < FUSED_TOKENS
        mask = None
        if not fused:
            width = whole_units(start + columns) - start
            shape = (columns, width)
            mask = torch.full(shape, -torch.inf, dtype=self._dtype, device=self._angles.cos.device)
            mask = mask.triu(1).repeat_interleave(self._group, 0)
        return Block(row.slot, row.offset + first, columns, start, mask)


def _attend_block(
    query: torch.Tensor, block: Block, keys: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """[columns, heads * head_dim]; keys, values [kv_heads, capacity, head_dim]"""
    columns, end = block.columns, block.start + 1
    kv_heads, _, head_dim = keys.shape
    # the query heads that share a key head become more columns of it: [kv_heads, columns * group]
    folded = query[block.offset : block.offset + columns].view(columns, kv_heads, -1, head_dim)
    folded = folded.transpose(0, 1).reshape(kv_heads, -1, head_dim)
    if block.mask is None:
        mixed = functional.scaled_dot_product_attention(
            folded[None], keys[None, :, :end], values[None, :, :end], scale=1.0
        )
    else:
        mixed = _products(folded, keys, values, block.start, block.mask)
    return mixed.view(kv_heads, columns, -1).transpose(0, 1).reshape(columns, -1)


def _cuts(row: RowSpan, *, aligned: bool) -> Iterator[tuple[int, int]]:
    """(first, columns) of each block of a row; `aligned` ones end where a unit does."""
    first = 0
    while first < row.columns:
        room = BLOCK_COLUMNS
        if aligned:
            room = min(room, UNIT_TOKENS - (row.start + first) % UNIT_TOKENS)
        columns = min(room, row.columns - first)
        yield first, columns
        first += columns


def _products(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int, mask: torch.Tensor
) -> torch.Tensor:
    """[kv_heads, columns * group, head_dim], as `query`.

    One product per head: a batched one first copies what is not one contiguous piece.
    """
    kv_heads, folded, _ = query.shape
    tokens = start + mask.shape[1]
    scores = query.new_empty((kv_heads, folded, tokens))
    for head in range(kv_heads):
        torch.mm(query[head], keys[head, :tokens].t(), out=scores[head])
    scores[:, :, start:] += mask
    weights = scores.softmax(-1)
    mixed = torch.empty_like(query)
    for head in range(kv_heads):
        torch.mm(weights[head], values[head, :tokens], out=mixed[head])
    return mixed
