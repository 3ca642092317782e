"""The output head. Its logits are fp32 and never pass through a narrower type: rounded to bf16,
the best two tie several times in a hundred tokens."""

import math
from collections.abc import Callable

import torch

from kernels import bf16_linear
from services.engine.models.linear import linear


class Head:
    """`weight` [vocab, hidden] in the model's type."""

    def __init__(self, weight: torch.Tensor, device: torch.device) -> None:
        self._vocab_size = len(weight)
        self._products = _products(weight, device)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """[L, hidden] to fp32 [L, vocab]; L may be 0."""
        if not len(hidden):
            return hidden.new_empty((0, self._vocab_size), dtype=torch.float32)
        return self._products(hidden)


def _products(weight: torch.Tensor, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """From [L, hidden] of the weights' type to fp32 [L, vocab], by the best that this CPU has."""
    if bf16_linear.fits(weight, device):
        return bf16_linear.Bf16Linear(weight).unrounded
    halves = "fbgemm" in torch.backends.quantized.supported_engines
    if weight.dtype == torch.bfloat16 and device.type == "cpu" and halves:
        return HalfLinear(weight)
    plain = linear(weight.float(), None, device)
    return lambda hidden: plain(hidden.float())


class HalfLinear:
    """bf16 weights kept as fp16, multiplied and summed in fp32.

    Scaled by a power of two that brings the largest near fp16's limit, bf16 weights lose only what
    is below 2^-40 of the largest. The demo model's head, one core, widths 1, 16 and 64: 1.8,
    5.6 and 24 ms; with fp32 weights 3.5, 7.1 and 19; with two bf16 passes, the second for what the
    rounding of the first lost, 4.1, 12 and 25.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        _, exponent = math.frexp(float(weight.abs().max()))
        self._scale = 2.0 ** (15 - exponent)
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight.float() * self._scale, None)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, in] to fp32 [T, out]."""
        scaled = x.float() / self._scale
        out: torch.Tensor = torch.ops.quantized.linear_dynamic_fp16(scaled, self._packed)
        return out
