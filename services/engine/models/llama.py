"""The llama family: grouped-query attention, rotary positions, RMSNorm, SwiGLU."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional

from services.engine.batch import Batch
from services.engine.kv import KvCache
from services.engine.models.config import LlamaConfig, parse_config
from services.engine.models.linear import Linear
from services.engine.models.rope import rope_tables, rotate
from services.engine.models.weights import Take, open_weights


class ForwardResult(NamedTuple):
    logits: torch.Tensor  # fp32 [L, vocab]
    hidden: torch.Tensor  # [T, hidden], behind the final norm: what MTP drafters read


@dataclass(frozen=True)
class Layer:
    input_norm: torch.Tensor
    qkv: Linear
    out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class LlamaModel:
    def __init__(
        self, config: LlamaConfig, take: Take, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.config = config
        self._dtype = dtype
        table = (config.vocab_size, config.hidden_size)
        self._embedding = take("model.embed_tokens.weight", table)
        self._layers = [_layer(config, take, index) for index in range(config.layers)]
        self._norm = take("model.norm.weight", (config.hidden_size,))
        head = self._embedding if config.tied_head else take("lm_head.weight", table)
        # Logits stay in fp32: rounded to bfloat16, the top two tie outright several times in 160
        # tokens. Reading the head twice as wide costs about a fifth of a one-column pass.
        self._head = Linear(head.float())
        self._cos, self._sin = rope_tables(config, config.max_context, device)
        self.parameters = _count_parameters(config)
        self.weight_bytes = self.parameters * dtype.itemsize

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype, device: torch.device) -> "LlamaModel":
        """Raises CheckpointError: the folder is not a sound llama-family checkpoint."""
        config = parse_config(folder)
        return cls(config, open_weights(folder, dtype, device), dtype=dtype, device=device)

    def forward(self, batch: Batch, kv: KvCache) -> ForwardResult:
        """One pass over all rows; writes their KV."""
        x = self._embedding[batch.token_ids].float()  # the residual stream is fp32
        cos, sin = self._cos[batch.positions], self._sin[batch.positions]  # [T, 1, head_dim]
        masks = [
            _causal_mask(row.start, row.columns, self.config, self._dtype, x.device)
            for row in batch.rows
        ]
        for index, layer in enumerate(self._layers):
            normed = self._rms_norm(x, layer.input_norm)
            x = x + layer.out(self._attend(index, layer.qkv(normed), (cos, sin), masks, batch, kv))
            gate, up = layer.gate_up(self._rms_norm(x, layer.mlp_norm)).chunk(2, dim=-1)
            x = x + layer.down(functional.silu(gate) * up)
        hidden = self._rms_norm(x, self._norm)
        return ForwardResult(self._head(hidden[batch.logit_columns].float()), hidden)

    def _attend(
        self,
        index: int,
        qkv: torch.Tensor,
        rope: tuple[torch.Tensor, torch.Tensor],
        masks: list[torch.Tensor | None],
        batch: Batch,
        kv: KvCache,
    ) -> torch.Tensor:
        """Each row over its own context; [T, heads * head_dim]."""
        heads, kv_heads, dim = self.config.heads, self.config.kv_heads, self.config.head_dim
        group = heads // kv_heads
        q, k, v = qkv.view(-1, heads + 2 * kv_heads, dim).split((heads, kv_heads, kv_heads), dim=1)
        q, k = rotate(q, *rope), rotate(k, *rope)
        outputs = []
        for row, mask in zip(batch.rows, masks, strict=True):
            own = slice(row.offset, row.offset + row.columns)
            keys, values = kv.write(index, row.slot, row.start, k[own], v[own])
            # Query heads that share a KV head become more query columns of it, so that the
            # context is read as it lies: [1, kv_heads, group * columns, head_dim].
            grouped = q[own].view(row.columns, kv_heads, group, dim).permute(1, 2, 0, 3)
            attended = functional.scaled_dot_product_attention(
                grouped.reshape(1, kv_heads, group * row.columns, dim), keys, values, attn_mask=mask
            )
            attended = attended.view(kv_heads, group, row.columns, dim).permute(2, 0, 1, 3)
            outputs.append(attended.reshape(row.columns, heads * dim))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _rms_norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """In fp32, rounded once on the way out to the linear layers' dtype."""
        scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.config.rms_eps)
        return (x * scale * weight).to(self._dtype)


def _causal_mask(
    start: int, columns: int, config: LlamaConfig, dtype: torch.dtype, device: torch.device
) -> torch.Tensor | None:
    """[group * columns, start + columns], 0 where column c may look (up to start + c).

    One column may look everywhere and needs none.
    """
    if columns == 1:
        return None
    mask = torch.full((columns, start + columns), float("-inf"), dtype=dtype, device=device)
    return mask.triu(start + 1).repeat(config.heads // config.kv_heads, 1)


def _layer(config: LlamaConfig, take: Take, index: int) -> Layer:
    name = f"model.layers.{index}."
    hidden, inner = config.hidden_size, config.intermediate_size
    q_rows, kv_rows = config.heads * config.head_dim, config.kv_heads * config.head_dim

    def linear(parts: list[tuple[str, int]], inputs: int, *, biased: bool) -> Linear:
        weights = [take(f"{name}{part}.weight", (rows, inputs)) for part, rows in parts]
        biases = [take(f"{name}{part}.bias", (rows,)) for part, rows in parts] if biased else []
        return Linear(torch.cat(weights), torch.cat(biases) if biased else None)

    bias, mlp_bias = config.attention_bias, config.mlp_bias
    attention = [(f"self_attn.{p}_proj", q_rows if p == "q" else kv_rows) for p in "qkv"]
    return Layer(
        input_norm=take(f"{name}input_layernorm.weight", (hidden,)).float(),
        qkv=linear(attention, hidden, biased=bias),
        out=linear([("self_attn.o_proj", hidden)], q_rows, biased=bias),
        mlp_norm=take(f"{name}post_attention_layernorm.weight", (hidden,)).float(),
        gate_up=linear([("mlp.gate_proj", inner), ("mlp.up_proj", inner)], hidden, biased=mlp_bias),
        down=linear([("mlp.down_proj", hidden)], inner, biased=mlp_bias),
    )


def _count_parameters(config: LlamaConfig) -> int:
    """Of the weights that a pass reads; a tied head counts once."""
    attention = config.hidden_size * config.head_dim * 2 * (config.heads + config.kv_heads)
    mlp = 3 * config.hidden_size * config.intermediate_size
    layer = attention + mlp + 2 * config.hidden_size
    tables = (1 if config.tied_head else 2) * config.vocab_size * config.hidden_size
    return config.layers * layer + tables + config.hidden_size
