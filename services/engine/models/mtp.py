"""Multi-token prediction: one layer of the target's kind that drafts from its hidden states.

With h_t the target's state behind its final norm and x_{t+1} the token that follows it, column t is

    z_t = fc([norm_embedding(E[x_{t+1}]) ; norm_hidden(h_t)])
    m_t = norm(block(z_t))               which the target's head scores as token t + 2

and the next draft step takes m_t in place of h_{t+1}. Embedding and head are the target's. Names
and layout are those of Qwen3.5 checkpoints (`mtp.*`), the idea is DeepSeek-V3's (2024, 2.2).
"""

from functools import partial

import torch
from torch.nn import functional

from services.engine.batch import RowSpan
from services.engine.kv import LayerKv
from services.engine.models.head import Head
from services.engine.models.linear import linear
from services.engine.models.llama import LlamaModel
from services.engine.models.llama_block import LlamaBlock
from services.engine.models.norm import RmsNorm
from services.engine.models.weights import Weights
from shared.errors import CheckpointError

SHORTLIST = "mtp.shortlist_ids"


class MtpModule:
    """Weights and graph; keys and values are in a layer of the target's `KvCache`."""

    def __init__(self, target: LlamaModel, weights: Weights, *, shortlist: bool) -> None:
        """With `shortlist` drafts come from the tokens that the checkpoint lists alone.

        Raises:
            CheckpointError: the tensors are missing or of other shapes.
        """
        self._target = target
        config, device = target.config, target.device
        size = config.hidden_size

        def norm(name: str) -> RmsNorm:
            weight = weights.take(f"mtp.{name}.weight", (size,), target.dtype)
            return RmsNorm(weight.to(device), config.rms_eps)

        self._norm_embedding = norm("pre_fc_norm_embedding")
        self._norm_hidden = norm("pre_fc_norm_hidden")
        self._norm = norm("norm")
        fc = weights.take("mtp.fc.weight", (size, 2 * size), target.dtype)
        self._fc = linear(fc, None, device)
        self._block = LlamaBlock(config, weights, "mtp.layers.0", target.dtype, device)
        self._ids: torch.Tensor | None = None  # int64 [shortlist]
        self._head = target.head
        if shortlist:
            self._ids = _shortlist(weights, config.vocab_size).to(device)
            self._head = Head(target.head_weight[self._ids.to(target.head_weight.device)], device)

    @torch.inference_mode()
    def remember(
        self,
        hidden: torch.Tensor,
        next_ids: torch.Tensor,
        rows: tuple[RowSpan, ...],
        kv: LayerKv,
    ) -> None:
        """Writes the keys and values of columns whose output nobody needs.

        There is one layer, so they depend on nothing but `hidden` [T, hidden] and the tokens
        behind it, `next_ids` int64 [T]: a fifth of a column's work.
        """
        positions = _positions(rows, hidden.device)
        attention = self._target.attention.of_pass(rows, positions, exact=False)
        attention.store(self._block.qkv(self._joined(hidden, next_ids)), *kv)

    @torch.inference_mode()
    def step(
        self,
        hidden: torch.Tensor,
        next_ids: torch.Tensor,
        rows: tuple[RowSpan, ...],
        kv: LayerKv,
    ) -> torch.Tensor:
        """[T, hidden], what `draft` scores and the next step takes as its `hidden`."""
        positions = _positions(rows, hidden.device)
        # a draft may be off by a rounding: what it says is verified
        attention = self._target.attention.of_pass(rows, positions, exact=False)
        mix = partial(attention.attend, keys=kv.keys, values=kv.values)
        return self._norm(self._block(self._joined(hidden, next_ids), mix))

    @torch.inference_mode()
    def logits(self, stepped: torch.Tensor) -> torch.Tensor:
        """fp32 [T, vocab], or [T, shortlist] with one."""
        return self._head(stepped)

    def draft(self, stepped: torch.Tensor) -> torch.Tensor:
        """The likeliest token of each, int64 [T]."""
        best = self.logits(stepped).argmax(-1)
        return best if self._ids is None else self._ids[best]

    def _joined(self, hidden: torch.Tensor, next_ids: torch.Tensor) -> torch.Tensor:
        embedded = self._norm_embedding(functional.embedding(next_ids, self._target.embedding))
        return self._fc(torch.cat((embedded, self._norm_hidden(hidden)), -1))


def has_mtp(weights: Weights) -> bool:
    return "mtp.fc.weight" in weights


def has_shortlist(weights: Weights) -> bool:
    return SHORTLIST in weights


def _shortlist(weights: Weights, vocab_size: int) -> torch.Tensor:
    ids = weights.take_ids(SHORTLIST)
    if not len(ids) or int(ids.min()) < 0 or int(ids.max()) >= vocab_size:
        raise CheckpointError(f"{SHORTLIST} holds ids beyond the vocabulary of {vocab_size}")
    return ids


def _positions(rows: tuple[RowSpan, ...], device: torch.device) -> torch.Tensor:
    spans = [torch.arange(row.start, row.start + row.columns) for row in rows]
    return torch.cat(spans).to(device)
