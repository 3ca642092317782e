"""Causal attention of a pass: each row over its own slot, without copying the context.

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
from services.engine.kv import UNIT_TOKENS, LayerKv, whole_units

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


class AttentionPlan(NamedTuple):
    """What the rows of a pass need in every layer."""

    rows: tuple[RowSpan, ...]
    blocks: tuple[Block, ...]


def plan_attention(
    rows: tuple[RowSpan, ...],
    group: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    exact: bool,
) -> AttentionPlan:
    """`group` is the number of query heads that share a key head.

    With `exact` a column is computed in the same way however many stand beside it. So no block
    crosses the end of a unit: oneDNN splits sums over more than 1,024 tokens by their number, and
    columns behind the end would make a column before it sum over a unit more.
    """
    blocks = []
    for row in rows:
        for first, columns in _cuts(row, aligned=exact):
            start = row.start + first
            fused = not exact and columns == 1 and start < FUSED_TOKENS
            mask = None if fused else _causal_mask(start, columns, group, dtype, device)
            blocks.append(Block(row.slot, row.offset + first, columns, start, mask))
    return AttentionPlan(rows, tuple(blocks))


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


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, plan: AttentionPlan, kv: LayerKv
) -> torch.Tensor:
    """Writes the new keys and values into their slots, then attends.

    Args:
        query: [T, heads, head_dim], scaled already
        key, value: [T, kv_heads, head_dim]

    Returns:
        [T, heads * head_dim]
    """
    store(key, value, plan.rows, kv)
    parts = [_attend_block(query, block, kv) for block in plan.blocks]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def store(key: torch.Tensor, value: torch.Tensor, rows: tuple[RowSpan, ...], kv: LayerKv) -> None:
    """Writes keys and values [T, kv_heads, head_dim] into the rows' slots."""
    for row in rows:
        here, end = slice(row.offset, row.offset + row.columns), row.start + row.columns
        kv.keys[row.slot, :, row.start : end] = key[here].transpose(0, 1)
        kv.values[row.slot, :, row.start : end] = value[here].transpose(0, 1)


def _attend_block(query: torch.Tensor, block: Block, kv: LayerKv) -> torch.Tensor:
    """[columns, heads * head_dim]"""
    slot, offset, columns, start, mask = block
    kv_heads, head_dim = kv.keys.shape[1], kv.keys.shape[3]
    # the query heads that share a key head become more columns of it: [kv_heads, columns * group]
    folded = query[offset : offset + columns].view(columns, kv_heads, -1, head_dim).transpose(0, 1)
    folded = folded.reshape(kv_heads, -1, head_dim)
    if mask is None:
        keys, values = kv.keys[slot, :, : start + 1], kv.values[slot, :, : start + 1]
        mixed = functional.scaled_dot_product_attention(
            folded[None], keys[None], values[None], scale=1.0
        )
    else:
        mixed = _products(folded, kv, slot, start, mask)
    return mixed.view(kv_heads, columns, -1).transpose(0, 1).reshape(columns, -1)


def _products(
    query: torch.Tensor, kv: LayerKv, slot: int, start: int, mask: torch.Tensor
) -> torch.Tensor:
    """[kv_heads, columns * group, head_dim], as `query`.

    One product per head: a batched one first copies what is not one contiguous piece.
    """
    kv_heads, folded, _ = query.shape
    tokens = start + mask.shape[1]
    scores = query.new_empty((kv_heads, folded, tokens))
    for head in range(kv_heads):
        torch.mm(query[head], kv.keys[slot, head, :tokens].t(), out=scores[head])
    scores[:, :, start:] += mask
    weights = scores.softmax(-1)
    mixed = torch.empty_like(query)
    for head in range(kv_heads):
        torch.mm(weights[head], kv.values[slot, head, :tokens], out=mixed[head])
    return mixed


def _causal_mask(
    start: int, columns: int, group: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    width = whole_units(start + columns) - start
    mask = torch.full((columns, width), -torch.inf, dtype=dtype, device=device).triu(1)
    return mask.repeat_interleave(group, 0)
