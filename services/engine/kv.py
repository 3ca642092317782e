"""Keys and values of every slot."""

import torch

from services.engine.models.config import LlamaConfig


class KvCache:
    """Per layer, keys and values [slots, kv_heads, max_context, head_dim].

    A slot's context is contiguous, so attention reads it in place. Memory is committed by the
    operating system as it is written, not when it is reserved here.
    """

    def __init__(
        self,
        config: LlamaConfig,
        *,
        slots: int,
        max_context: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (slots, config.kv_heads, max_context, config.head_dim)
        self.keys = [torch.empty(shape, dtype=dtype, device=device) for _ in range(config.layers)]
        self.values = [torch.empty(shape, dtype=dtype, device=device) for _ in range(config.layers)]

    def write(
        self, layer: int, slot: int, start: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores columns [columns, kv_heads, head_dim] at `start`; returns views of the context.

        The views are [1, kv_heads, start + columns, head_dim], without a copy.
        """
        end = start + keys.shape[0]
        self.keys[layer][slot, :, start:end] = keys.transpose(0, 1)
        self.values[layer][slot, :, start:end] = values.transpose(0, 1)
        return (
            self.keys[layer][slot : slot + 1, :, :end],
            self.values[layer][slot : slot + 1, :, :end],
        )
