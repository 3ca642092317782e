"""The llama family: grouped-query attention, rotate-half rope, RMSNorm, SwiGLU."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional

from services.engine.batch import Batch
from services.engine.kv import KvCache, LayerKv
from services.engine.models.attention import AttentionPlan, attend, plan_attention
from services.engine.models.config import LlamaConfig, parse_config
from services.engine.models.head import Head
from services.engine.models.linear import Linear, linear
from services.engine.models.norm import RmsNorm
from services.engine.models.rope import Angles, Rope, rotate
from services.engine.models.weights import Weights

# Tensors that may lie in the folder without being part of this graph.
OTHERS = ("mtp.", "model.rotary_emb.", "lm_head.weight")


class ForwardResult(NamedTuple):
    logits: torch.Tensor  # fp32 [L, vocab], of batch.logit_columns
    hidden: torch.Tensor  # [T, hidden], behind the final norm


class Layer(NamedTuple):
    attention_norm: RmsNorm
    qkv: Linear
    output: Linear
    mlp_norm: RmsNorm
    gate_up: Linear
    down: Linear


class LlamaModel:
    """Weights and the graph. Holds no state of any request; that is in the `KvCache`.

    With `exact` every pass gives a token the same bits, whatever its width: attention takes one
    path only, and a lone column is computed as two, since matrix kernels for a single vector add up
    in an order of their own. `Runner.is_exact` tells whether that holds on this machine.
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
        self.parameters = 0
        self._weights = weights
        wide = (config.vocab_size, config.hidden_size)
        embedding = self._take("model.embed_tokens.weight", *wide)
        self._layers = [self._layer(f"model.layers.{i}") for i in range(config.layers)]
        self._norm = self._rms_norm("model.norm")
        head = embedding if config.tied_head else self._take("lm_head.weight", *wide)
        self._head = Head(head, device)
        self._embedding = embedding.to(device)
        self._query_scale = config.head_dim**-0.5
        self._rope = Rope(config.rope, config.head_dim, device)
        weights.refuse_leftovers(OTHERS)
        # what a pass of one column reads at least, the embedding's row aside
        self.weight_bytes = self.parameters * embedding.element_size()

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
        config = self.config
        angles = self._rope.angles(batch.positions, self.dtype)
        group = config.heads // config.kv_heads
        plan = plan_attention(batch.rows, group, self.dtype, self.device, exact=self.exact)
        x = functional.embedding(batch.token_ids, self._embedding)
        if self.exact and len(x) == 1:
            x = x.repeat(2, 1)
        for layer, layer_kv in zip(self._layers, kv.layers, strict=True):
            x = self._attention(layer, x, angles, plan, layer_kv)
            x = _mlp(layer, x)
        hidden = self._norm(x)[: len(batch.token_ids)]
        return ForwardResult(self._head(hidden[batch.logit_columns]), hidden)

    def _attention(
        self,
        layer: Layer,
        x: torch.Tensor,
        angles: Angles,
        plan: AttentionPlan,
        kv: LayerKv,
    ) -> torch.Tensor:
        config = self.config
        heads = layer.qkv(layer.attention_norm(x)).view(len(x), -1, config.head_dim)
        turning = config.heads + config.kv_heads
        turned = rotate(heads[:, :turning], angles)
        query = turned[:, : config.heads] * self._query_scale
        mixed = attend(query, turned[:, config.heads :], heads[:, turning:], plan, kv)
        if len(mixed) < len(x):  # a lone column that is computed as two
            mixed = mixed.repeat(2, 1)
        return layer.output.onto(x, mixed)

    def _layer(self, prefix: str) -> Layer:
        config = self.config
        hidden, inner = config.hidden_size, config.intermediate_size
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        qkv = {f"{attention}.q_proj": queries}
        qkv |= {f"{attention}.k_proj": keys, f"{attention}.v_proj": keys}
        gate_up = {f"{mlp}.gate_proj": inner, f"{mlp}.up_proj": inner}
        output, down = {f"{attention}.o_proj": hidden}, {f"{mlp}.down_proj": hidden}
        return Layer(
            attention_norm=self._rms_norm(f"{prefix}.input_layernorm"),
            qkv=self._linear(qkv, hidden, config.attention_bias),
            output=self._linear(output, queries, config.attention_bias),
            mlp_norm=self._rms_norm(f"{prefix}.post_attention_layernorm"),
            gate_up=self._linear(gate_up, hidden, config.mlp_bias),
            down=self._linear(down, inner, config.mlp_bias),
        )

    def _linear(self, parts: dict[str, int], width: int, has_bias: bool) -> Linear:
        """One layer that computes several side by side: name to its output size."""
        weight = torch.cat([self._take(f"{n}.weight", size, width) for n, size in parts.items()])
        bias = None
        if has_bias:
            bias = torch.cat([self._take(f"{n}.bias", size) for n, size in parts.items()])
        return linear(weight, bias, self.device)

    def _rms_norm(self, name: str) -> RmsNorm:
        weight = self._take(f"{name}.weight", self.config.hidden_size)
        return RmsNorm(weight.to(self.device), self.config.rms_eps)

    def _take(self, name: str, *shape: int) -> torch.Tensor:
        tensor = self._weights.take(name, shape, self.dtype)
        self.parameters += tensor.numel()
        return tensor


def _mlp(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    gate, up = layer.gate_up(layer.mlp_norm(x)).chunk(2, dim=-1)
    return layer.down.onto(x, functional.silu(gate).mul_(up))
