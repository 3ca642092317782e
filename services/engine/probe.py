"""Do passes of every width give the same bits on this machine? Kernels differ, so it is tried."""

from collections.abc import Iterator

import torch

from services.engine.batch import Batch, RowSpan
from services.engine.kv import KvCache
from services.engine.models.llama import LlamaModel

# Across the edge of an attention unit, in the widths of plain decoding, of copies, of prompts.
TOKENS = 80
WIDTHS = ((64, 16), (16, 48, 15, 1), (62, *([1] * 18)), (31, 2, 33, 1, 4, 1, 8))


def is_exact(model: LlamaModel, kv: KvCache) -> bool:
    """Computes one text in slot 0, in one wide pass and in narrow ones; compares logits and KV."""
    tokens = min(TOKENS, kv.max_context)
    wide = _compute(model, kv, (tokens,), tokens)
    return all(
        torch.equal(ours, theirs)
        for widths in WIDTHS
        for ours, theirs in zip(wide, _compute(model, kv, widths, tokens), strict=True)
    )


def _compute(
    model: LlamaModel, kv: KvCache, widths: tuple[int, ...], tokens: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits of all columns, fp32 [tokens, vocab], and the model's last layer's values."""
    ids = (torch.arange(tokens) * 7 % model.config.vocab_size).to(model.device)
    places = torch.arange(tokens, device=model.device)
    parts = []
    for start, columns in _cuts(widths, tokens):
        rows = (RowSpan(slot=0, start=start, columns=columns, offset=0),)
        here = slice(start, start + columns)
        parts.append(
            model.forward(Batch(ids[here], places[here], rows, places[:columns]), kv).logits
        )
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
