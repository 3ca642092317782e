"""RMSNorm."""

import numpy as np
import torch

from kernels.arrays import Rows, array
from kernels.rms_norm import rms_norm


class RmsNorm:
    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight = weight.float()
        self._bare = array(self._weight) if self._weight.device.type == "cpu" else None
        self._eps = eps

    def __call__(self, x: Rows) -> Rows:
        """[T, size] of any float type; computed in fp32."""
        if isinstance(x, np.ndarray):
            assert self._bare is not None
            return rms_norm(x, self._bare, self._eps)
        return rms_norm(x, self._weight, self._eps)
