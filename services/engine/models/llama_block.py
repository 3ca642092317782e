"""One layer of the llama family: attention and SwiGLU, each behind an RMSNorm."""

from collections.abc import Callable

import numpy as np
import torch

from kernels.bf16_linear import Bf16Linear
from kernels.swiglu import swiglu
from services.engine.models.config import LlamaConfig
from services.engine.models.linear import Linear, linear
from services.engine.models.norm import RmsNorm
from services.engine.models.weights import Weights

# From queries, keys and values side by side, [T, (heads + 2 * kv_heads) * head_dim] and not yet
# rotated, to [T, heads * head_dim], or to as many rows as the pass has. It keeps keys and values.
Attention = Callable[[torch.Tensor], torch.Tensor]


class LlamaBlock:
    """Weights and graph of the layer whose tensors begin with `prefix`."""

    def __init__(
        self,
        config: LlamaConfig,
        weights: Weights,
        prefix: str,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._config = config
        self._weights = weights
        self._dtype, self._device = dtype, device
        hidden, inner = config.hidden_size, config.intermediate_size
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        qkv = {f"{attention}.q_proj": queries}
        qkv |= {f"{attention}.k_proj": keys, f"{attention}.v_proj": keys}
        gate_up = {f"{mlp}.gate_proj": inner, f"{mlp}.up_proj": inner}
        output, down = {f"{attention}.o_proj": hidden}, {f"{mlp}.down_proj": hidden}
        self._attention_norm = self._rms_norm(f"{prefix}.input_layernorm")
        self._qkv = self._linear(qkv, hidden, config.attention_bias)
        self._output = self._linear(output, queries, config.attention_bias)
        self._mlp_norm = self._rms_norm(f"{prefix}.post_attention_layernorm")
        self._gate_up = self._linear(gate_up, hidden, config.mlp_bias)
        self._down = self._linear(down, inner, config.mlp_bias)
        linears = (self._qkv, self._output, self._gate_up, self._down)
        self._kernels = [each for each in linears if isinstance(each, Bf16Linear)]

    def __call__(self, x: torch.Tensor, attention: Attention) -> torch.Tensor:
        """[T, hidden] to the same."""
        mixed = attention(self.qkv(x))
        if len(mixed) < len(x):  # a lone column that is computed as two
            mixed = mixed.repeat(2, 1)
        x = self._output.onto(x, mixed)
        return self._down.onto(x, swiglu(self._gate_up(self._mlp_norm(x))))

    def bare(self, x: np.ndarray, attention: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """As `__call__` does, where `kernels_alone`; `kernels/arrays.py` says why."""
        qkv, output, gate_up, down = self._kernels
        x = output.onto(x, attention(qkv(self._attention_norm(x))))
        return down.onto(x, swiglu(gate_up(self._mlp_norm(x))))

    @property
    def kernels_alone(self) -> bool:
        """Whether `kernels/` compute all linear layers, a column alone as one beside others."""
        return len(self._kernels) == 4

    def qkv(self, x: torch.Tensor) -> torch.Tensor:
        """What the attention of [T, hidden] takes."""
        return self._qkv(self._attention_norm(x))

    def _linear(self, parts: dict[str, int], width: int, has_bias: bool) -> Linear:
        """One layer that computes several side by side: name to its output size."""
        weight = torch.cat([self._take(f"{n}.weight", size, width) for n, size in parts.items()])
        bias = None
        if has_bias:
            bias = torch.cat([self._take(f"{n}.bias", size) for n, size in parts.items()])
        return linear(weight, bias, self._device, self._weights.form)

    def _rms_norm(self, name: str) -> RmsNorm:
        weight = self._take(f"{name}.weight", self._config.hidden_size)
        return RmsNorm(weight.to(self._device), self._config.rms_eps)

    def _take(self, name: str, *shape: int) -> torch.Tensor:
        return self._weights.take(name, shape, self._dtype)
