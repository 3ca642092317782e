"""The llama family: grouped-query attention, rotate-half rope, RMSNorm, SwiGLU."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from kernels.arrays import array, tensor
from kernels.attention import PassAttention as KernelAttention
from services.engine.batch import Batch
from services.engine.kv import KvCache
from services.engine.models.config import LlamaConfig, parse_config
from services.engine.models.head import Head
from services.engine.models.llama_block import LlamaBlock
from services.engine.models.norm import RmsNorm
from services.engine.models.pass_attention import Attention
from services.engine.models.rope import Rope
from services.engine.models.weight_form import Matrices
from services.engine.models.weights import Weights

# Tensors that may lie in the folder without being part of this graph.
OTHERS = ("mtp.", "model.rotary_emb.", "lm_head.weight")


class ForwardResult(NamedTuple):
    logits: torch.Tensor  # fp32 [L, vocab], of batch.logit_columns
    hidden: torch.Tensor  # [T, hidden], behind the final norm


class LlamaModel:
    """Weights and the graph. Holds no state of any request; that is in the `KvCache`.

    With `exact` every pass gives a token the same bits, whatever its width: attention takes one
    path only, and a lone column is computed as two where the matrix kernels add up a single vector
    in an order of their own. `probe.is_exact` tells whether that holds on this machine.
    """

    def __init__(
        self,
        config: LlamaConfig,
        weights: Weights,
        dtype: torch.dtype,
        device: torch.device,
        *,
        exact: bool = True,
    ) -> None:
        self.config = config
        self.exact = exact
        self.dtype = dtype
        self.device = device
        wide = (config.vocab_size, config.hidden_size)
        embedding = weights.take("model.embed_tokens.weight", wide, dtype)
        self.blocks = [
            LlamaBlock(config, weights, f"model.layers.{i}", dtype, device)
            for i in range(config.layers)
        ]
        self._kernels_alone = all(block.kernels_alone for block in self.blocks)
        norm = weights.take("model.norm.weight", (config.hidden_size,), dtype)
        self.norm = RmsNorm(norm.to(device), config.rms_eps)
        head = embedding if config.tied_head else weights.take("lm_head.weight", wide, dtype)
        self.head = Head(head, device)
        self.head_weight = head  # [vocab, hidden]
        self.embedding = embedding.to(device)
        self.rope = Rope(config.rope, config.head_dim, device)
        self.attention = Attention(config, self.rope, dtype, device)
        weights.refuse_leftovers(OTHERS)
        self.parameters = weights.elements
        # what a pass of one column reads at least, the embedding's row aside
        size = embedding.element_size()
        saved = Matrices.of(config).saved_bytes(weights.form, size)
        self.weight_bytes = self.parameters * size - saved
        self.weight_form = weights.form

    @classmethod
    def load(
        cls, folder: Path, *, dtype: torch.dtype, device: torch.device, exact: bool = True
    ) -> "LlamaModel":
        """From a Hugging Face style folder.

        Raises:
            CheckpointError: damaged, incomplete, or not a model of this family.
        """
        return cls(parse_config(folder), Weights(folder), dtype, device, exact=exact)

    @torch.inference_mode()
    def forward(self, batch: Batch, kv: KvCache) -> ForwardResult:
        """One pass over all rows; writes their keys and values.

        The caller vouches for the batch: ids within the vocabulary, rows within the slots and
        `kv.max_context`, no slot twice.
        """
        attention = self.attention.of_pass(batch.rows, batch.positions, exact=self.exact)
        x = functional.embedding(batch.token_ids, self.embedding)
        if self._kernels_alone and isinstance(attention, KernelAttention):
            x = tensor(self._bare(array(x), attention, kv))
        else:
            if self.exact and not self._kernels_alone and len(x) == 1:
                x = x.repeat(2, 1)
            for block, (keys, values) in zip(self.blocks, kv.layers, strict=False):
                x = block(x, partial(attention.attend, keys=keys, values=values))
        hidden = self.norm(x)[: len(batch.token_ids)]
        return ForwardResult(self.head(hidden[batch.logit_columns]), hidden)

    def _bare(self, x: np.ndarray, attention: KernelAttention, kv: KvCache) -> np.ndarray:
        """Through all blocks, [T, hidden] to the same."""
        for block, (keys, values) in zip(self.blocks, kv.arrays, strict=False):
            x = block.bare(x, partial(attention.attend, keys=keys, values=values))
        return x
