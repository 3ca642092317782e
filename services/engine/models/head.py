"""The output head. Its logits are fp32 and never pass through a narrower type: rounded to bf16,
the best two tie several times in a hundred tokens."""

import torch

from services.engine.models.linear import linear


class Head:
    def __init__(self, weight: torch.Tensor, device: torch.device) -> None:
        self._linear = linear(weight.float(), None, device)
        self._vocab_size = len(weight)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """[L, hidden] to fp32 [L, vocab]; L may be 0."""
        if not len(hidden):
            return hidden.new_empty((0, self._vocab_size), dtype=torch.float32)
        return self._linear(hidden.float())
