"""Linear layers with their weights packed once.

`F.linear` in bfloat16 on a CPU repacks the weights at each call; oneDNN's packed form is made here
once. On other devices, and in float32, the plain operator runs.
"""

import torch
from torch.nn import functional


class Linear:
    """y = x W^T + b for x [columns, inputs]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._bias = bias
        self._packed = weight.device.type == "cpu" and weight.dtype == torch.bfloat16
        self._weight = weight
        if self._packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.to_mkldnn(), None)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._packed:
            y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self._weight, self._bias, "none", [], ""
            )
            return y
        return functional.linear(x, self._weight, self._bias)
