"""Causal attention of a pass: each row over its own slot, without copying the context."""

from typing import NamedTuple

import torch
from torch.nn import functional

from services.engine.batch import RowSpan
from services.engine.kv import LayerKv


class RowAttention(NamedTuple):
    span: RowSpan
    mask: torch.Tensor | None  # [columns * group, start + columns], added to the scores


def plan_rows(
    rows: tuple[RowSpan, ...], group: int, dtype: torch.dtype, device: torch.device
) -> tuple[RowAttention, ...]:
    """What the rows of a pass need in every layer; a single column sees all and needs no mask."""
    return tuple(RowAttention(row, _mask(row, group, dtype, device)) for row in rows)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    rows: tuple[RowAttention, ...],
    kv: LayerKv,
) -> torch.Tensor:
    """Writes the new keys and values into their slots, then attends.

    Args:
        query: [T, heads, head_dim]
        key, value: [T, kv_heads, head_dim]

    Returns:
        [T, heads * head_dim]
    """
    kv_heads, head_dim = key.shape[1:]
    parts = []
    for row, mask in rows:
        slot, start, width = row.slot, row.start, row.columns
        here, end = slice(row.offset, row.offset + width), start + width
        kv.keys[slot, :, start:end] = key[here].transpose(0, 1)
        kv.values[slot, :, start:end] = value[here].transpose(0, 1)
        # the query heads that share a key head become more queries of it: [kv_heads, width * group]
        folded = query[here].view(width, kv_heads, -1, head_dim).transpose(0, 1)
        mixed = functional.scaled_dot_product_attention(
            folded.reshape(1, kv_heads, -1, head_dim),
            kv.keys[slot : slot + 1, :, :end],
            kv.values[slot : slot + 1, :, :end],
            attn_mask=mask,
        )
        parts.append(mixed.view(kv_heads, width, -1).transpose(0, 1).reshape(width, -1))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _mask(
    row: RowSpan, group: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor | None:
    if row.columns == 1:
        return None
    places = torch.arange(row.start + row.columns, device=device)
    last_seen = torch.arange(row.start, row.start + row.columns, device=device)
    hidden = places > last_seen.repeat_interleave(group)[:, None]
    return torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, -torch.inf)
