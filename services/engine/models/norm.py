"""RMSNorm."""

import torch
from torch.nn import functional


class RmsNorm:
    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight = weight.float()
        self._shape = tuple(weight.shape)
        self._eps = eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, size] of any float type; computed in fp32."""
        return functional.rms_norm(x.float(), self._shape, self._weight, self._eps).to(x.dtype)
