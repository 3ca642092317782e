"""What one forward pass computes."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RowSpan:
    """One row's columns within the packed pass.

    The row's KV holds [0, start) already; this pass writes [start, start + columns).
    """

    slot: int  # which KV slot
    start: int  # position of the first column
    columns: int  # >= 1
    offset: int  # index of the first column in the packed pass


@dataclass(frozen=True)
class Batch:
    """Rows of different widths, packed without padding: T is the sum of all columns."""

    token_ids: torch.Tensor  # int64 [T]
    positions: torch.Tensor  # int64 [T]
    rows: tuple[RowSpan, ...]
    logit_columns: torch.Tensor  # int64 [L], indexes into T whose logits are wanted
