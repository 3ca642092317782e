"""Do passes of every width give the same bits on this machine? Kernels differ, so it is tried."""

from collections.abc import Iterator

import torch

from services.engine.batch import Batch, RowSpan
from services.engine.kv import KvCache
from services.engine.models.llama import LlamaModel

# Across the edges of attention units, in the widths of plain decoding, of copies, of prompts.
TOKENS = 160
WIDTHS = (
    (64, 16, 80),
    (16, 48, 15, 1, 80),
    (62, *([1] * 18), 80),
    (31, 2, 33, 1, 4, 1, 8, 17, 63),
)
# and beside other rows
COMPANY = ((33, 1, 64, 3, 59), (1, 96, 2, 61))


def is_exact(model: LlamaModel, kv: KvCache) -> bool:
    """Computes one text in one wide pass and in narrow ones, alone and beside others; compares
    logits and KV. It writes to the first slots."""
    tokens = min(TOKENS, kv.max_context)
    wide = _compute(model, kv, (tokens,), tokens)
    ways = [(widths, 1) for widths in WIDTHS]
    ways += [(widths, min(3, kv.slots)) for widths in COMPANY]
    return all(
        torch.equal(ours, theirs)
        for widths, rows in ways
        for ours, theirs in zip(wide, _compute(model, kv, widths, tokens, rows=rows), strict=True)
    )


def _compute(
    model: LlamaModel, kv: KvCache, widths: tuple[int, ...], tokens: int, *, rows: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits of all columns, fp32 [tokens, vocab], and the model's last layer's values, of the
    first of so many rows; all of them have the same text."""
    ids = (torch.arange(tokens) * 7 % model.config.vocab_size).to(model.device)
    places = torch.arange(tokens, device=model.device)
    parts = []
    for start, columns in _cuts(widths, tokens):
        spans = tuple(RowSpan(slot, start, columns, slot * columns) for slot in range(rows))
        here = slice(start, start + columns)
        batch = Batch(ids[here].repeat(rows), places[here].repeat(rows), spans, places[:columns])
        parts.append(model.forward(batch, kv).logits)
    last = kv.layers[model.config.layers - 1]
    return torch.cat(parts), last.values[0, :, :tokens].clone()


def _cuts(widths: tuple[int, ...], tokens: int) -> Iterator[tuple[int, int]]:
    """(start, columns) of each pass."""
    start = 0
    for width in widths:
        columns = min(width, tokens - start)
        if columns:
            yield start, columns
        start += columns
