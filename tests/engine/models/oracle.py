"""transformers as the oracle, and batches made by hand."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from services.engine.batch import Batch, RowSpan
from services.engine.kv import KvCache
from services.engine.models.llama import ForwardResult, LlamaModel

CPU = torch.device("cpu")


def load(folder: Path, dtype: torch.dtype = torch.float32) -> LlamaModel:
    return LlamaModel.load(folder, dtype=dtype, device=CPU)


def make_kv(model: LlamaModel, *, slots: int = 1, max_context: int = 256) -> KvCache:
    return KvCache(
        model.config, slots=slots, max_context=max_context, dtype=model.dtype, device=CPU
    )


def run(model: LlamaModel, kv: KvCache, *rows: tuple[int, int, torch.Tensor]) -> ForwardResult:
    """One pass over rows of (slot, start, token ids), with the logits of every column."""
    spans, positions, offset = [], [], 0
    for slot, start, ids in rows:
        spans.append(RowSpan(slot, start, len(ids), offset))
        positions.append(torch.arange(start, start + len(ids)))
        offset += len(ids)
    ids = torch.cat([ids for _, _, ids in rows])
    return model.forward(Batch(ids, torch.cat(positions), tuple(spans), torch.arange(offset)), kv)


def random_ids(count: int, vocab_size: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, vocab_size, (count,), generator=torch.Generator().manual_seed(seed))


def oracle_logits(folder: Path, ids: torch.Tensor) -> torch.Tensor:
    """transformers' fp32 logits [len(ids), vocab]."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits: torch.Tensor = model(ids[None]).logits[0]
    return logits


def relative_error(out: torch.Tensor, reference: torch.Tensor) -> float:
    return float((out.double() - reference.double()).norm() / reference.double().norm())
