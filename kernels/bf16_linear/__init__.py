"""A linear layer of bf16 weights on CPUs with AVX512_BF16: products and sums in fp32, rounded once.

The weights lie in panels of 64 outputs, in which the numbers of two inputs alternate, as the
instruction takes them. One panel serves all columns of a pass before the next is read, so weights
are read once, at the speed of the memory: of the demo model's layers 5.3 ms at width 1 where
oneDNN's packed layers take 8.4, 10.6 against 14.9 at 16, 27 against 34 at 64 (one core of an EPYC).
"""

import numpy as np
import torch

from kernels import pairs
from kernels.arrays import Rows, array, empty
from kernels.bf16_linear.kernel import PANEL, multiply

# Up to so many columns the memory sets the pace, so that sharing pays as if there were as many.
NARROW = 16


def fits(weight: torch.Tensor, device: torch.device) -> bool:
    """`weight` [out, in]."""
    outputs, inputs = weight.shape
    whole = not outputs % PANEL and not inputs % 2
    return device.type == "cpu" and weight.dtype == torch.bfloat16 and whole and pairs.are_there()


class Bf16Linear:
    """`weight` bf16 [out, in], `bias` [out] or none."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        outputs, inputs = weight.shape
        apart = weight.view(outputs // PANEL, PANEL, inputs // 2, 2)
        self._panels = array(apart.transpose(1, 2).contiguous())
        self._bias = array(torch.zeros(outputs) if bias is None else bias.float())
        self._nothing = array(torch.zeros(outputs))

    def __call__(self, x: Rows) -> Rows:
        """bf16 [T, in] to bf16 [T, out]."""
        out = empty(x, len(x), len(self._bias))
        self._multiply(array(x), self._nothing, 0, array(out))
        return out

    def onto(self, residual: Rows, x: Rows) -> Rows:
        """`residual` bf16 [T, out] plus the layer of `x` [T, in]; the sum is rounded once."""
        out = empty(x, len(x), len(self._bias))
        self._multiply(array(x), array(residual), residual.shape[1], array(out))
        return out

    def unrounded(self, x: torch.Tensor) -> torch.Tensor:
        """bf16 [T, in] to fp32 [T, out]."""
        out = x.new_empty((len(x), len(self._bias)), dtype=torch.float32)
        self._multiply(array(x), self._nothing, 0, array(out))
        return out

    def _multiply(self, x: np.ndarray, residual: np.ndarray, stride: int, out: np.ndarray) -> None:
        work = max(len(x), NARROW) * self._panels.size
        multiply(work, x, self._panels, self._bias, residual, stride, out)
