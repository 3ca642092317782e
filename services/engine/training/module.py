"""The MTP module as a differentiable graph: fp32 weights, bf16 products."""

from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from torch.nn import functional

from services.engine.models.config import LlamaConfig
from services.engine.models.projections import layer_projections
from services.engine.models.rope import Rope, rotate
from services.engine.models.tensor_index import safetensors_errors
from services.engine.models.weights import Weights
from shared.errors import CheckpointError

LAYER = "mtp.layers.0."


class _Seen(NamedTuple):
    """Of each step so far, [B, heads, L, head_dim]."""

    keys: list[torch.Tensor]
    values: list[torch.Tensor]


class TrainableMtp:
    """`weights` are fp32 leaves under the names that a checkpoint has them by."""

    def __init__(self, config: LlamaConfig, weights: dict[str, torch.Tensor]) -> None:
        self._config = config
        self.weights = {name: w.float().requires_grad_() for name, w in weights.items()}
        self._rope = Rope(config.rope, config.head_dim, torch.device("cpu"))

    def unroll(
        self, embedded: torch.Tensor, hidden: torch.Tensor, depths: int
    ) -> list[torch.Tensor]:
        """What each draft step would give from every position on, were all drafts right.

        As in a round, step 0 reads the target's hidden states, and a later step reads the one
        before, attends to step 0 up to its chain's first position and then to its own chain.

        Args:
            embedded: [B, L, hidden], the text's embeddings.
            hidden: [B, L, hidden], the target's states behind its final norm.

        Returns:
            For each depth j [B, L, hidden] behind `mtp.norm`; at t it speaks of token t + 2 + j.
            The last 1 + j positions lack their tokens and mean nothing.
        """
        seen = _Seen([], [])
        outputs = []
        for depth in range(depths):
            hidden = self._step(embedded.roll(-1 - depth, 1), hidden, seen)
            outputs.append(hidden)
        return outputs

    def _step(self, embedded: torch.Tensor, hidden: torch.Tensor, seen: "_Seen") -> torch.Tensor:
        """Adds this step's keys and values to those of the steps before."""
        config, depth = self._config, len(seen.keys)
        rows, size, _ = hidden.shape
        norms = (
            self._norm("mtp.pre_fc_norm_embedding", embedded),
            self._norm("mtp.pre_fc_norm_hidden", hidden),
        )
        x = self._linear("mtp.fc", torch.cat(norms, -1))
        inner = self._norm(f"{LAYER}input_layernorm", x)
        angles = self._rope.angles(torch.arange(depth, depth + size))
        heads = [
            self._linear(f"{LAYER}self_attn.{part}", inner).view(rows, size, -1, config.head_dim)
            for part in ("q_proj", "k_proj", "v_proj")
        ]
        group = config.heads // config.kv_heads
        query = rotate(heads[0], angles).transpose(1, 2)
        seen.keys.append(rotate(heads[1], angles).repeat_interleave(group, 2).transpose(1, 2))
        seen.values.append(heads[2].repeat_interleave(group, 2).transpose(1, 2))
        mixed = functional.scaled_dot_product_attention(
            query.bfloat16(),
            torch.cat(seen.keys, 2).bfloat16(),
            torch.cat(seen.values, 2).bfloat16(),
            attn_mask=_mask(size, depth),
        )
        x = x + self._linear(
            f"{LAYER}self_attn.o_proj", mixed.transpose(1, 2).reshape(rows, size, -1)
        )
        inner = self._norm(f"{LAYER}post_attention_layernorm", x)
        gate = functional.silu(self._linear(f"{LAYER}mlp.gate_proj", inner))
        up = self._linear(f"{LAYER}mlp.up_proj", inner)
        return self._norm("mtp.norm", x + self._linear(f"{LAYER}mlp.down_proj", gate * up))

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        bias = self.weights.get(f"{name}.bias")
        weight = self.weights[f"{name}.weight"].bfloat16()
        half = None if bias is None else bias.bfloat16()
        return functional.linear(x.bfloat16(), weight, half).float()

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        weight = self.weights[f"{name}.weight"]
        return functional.rms_norm(x.float(), weight.shape, weight, self._config.rms_eps)


def _mask(size: int, depth: int) -> torch.Tensor:
    """bool [L, (1 + depth) * L]: step 0 up to each position, and its own chain behind."""
    causal = torch.ones(size, size, dtype=torch.bool).tril()
    own = torch.eye(size, dtype=torch.bool)
    return torch.cat([causal, *([own] * depth)], dim=1)


def trained_weights(config: LlamaConfig, target: Weights, file: Path) -> dict[str, torch.Tensor]:
    """Those of a drafter that was trained before, for the same kind of model.

    Raises:
        CheckpointError: the file is damaged, or not of this model's sizes.
    """
    weights = initial_weights(config, target)
    with safetensors_errors(file), safe_open(file, framework="pt") as tensors:
        names = set(tensors.keys())
        for name, own in weights.items():
            if name not in names:
                raise CheckpointError(f"{file} has no tensor {name}")
            found = tensors.get_tensor(name)
            if found.shape != own.shape:
                sizes = f"{list(found.shape)}, not {list(own.shape)}"
                raise CheckpointError(f"{file}: {name} is {sizes}")
            own.copy_(found)
    return weights


def initial_weights(config: LlamaConfig, target: Weights) -> dict[str, torch.Tensor]:
    """The target's last layer, fed with its hidden state alone until training finds more.

    Raises:
        CheckpointError: the target lacks a tensor.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    sizes = layer_projections(hidden=hidden, inner=inner, queries=queries, keys=keys)
    last = f"model.layers.{config.layers - 1}."

    def take(name: str, *shape: int) -> torch.Tensor:
        return target.take(name, shape, torch.float32).clone()

    weights = {
        "mtp.fc.weight": torch.cat([torch.zeros(hidden, hidden), torch.eye(hidden)], dim=1),
        "mtp.pre_fc_norm_embedding.weight": torch.ones(hidden),
        "mtp.pre_fc_norm_hidden.weight": torch.ones(hidden),
        "mtp.norm.weight": take("model.norm.weight", hidden),
    }
    for part in ("input_layernorm", "post_attention_layernorm"):
        weights[f"{LAYER}{part}.weight"] = take(f"{last}{part}.weight", hidden)
    for part, shape in sizes.items():
        weights[f"{LAYER}{part}.weight"] = take(f"{last}{part}.weight", *shape)
        has_bias = config.attention_bias if part.startswith("self_attn") else config.mlp_bias
        if has_bias:
            weights[f"{LAYER}{part}.bias"] = take(f"{last}{part}.bias", shape[0])
    return weights
