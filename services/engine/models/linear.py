"""A linear layer: packed once on a CPU, in its type or in fewer bits, plain elsewhere."""

from typing import Protocol

import torch
from torch.nn import functional

from kernels import bf16_linear
from services.engine.models.int4_linear import Int4Linear
from services.engine.models.int8_linear import Int8Linear
from services.engine.models.weight_form import WeightForm


class Linear(Protocol):
    """`weight` [out, in], `bias` [out] or none."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, in] to [T, out]."""
        ...

    def onto(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """`residual` [T, out] plus the layer of `x` [T, in]; the sum is rounded once."""
        ...


def linear(
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    device: torch.device,
    form: WeightForm = "full",
) -> Linear:
    """Forms other than the full one are for bf16 on a CPU."""
    if form == "int8":
        return Int8Linear(weight, bias)
    if form == "int4":
        return Int4Linear(weight, bias)
    if bf16_linear.fits(weight, device):
        return bf16_linear.Bf16Linear(weight, bias)
    if device.type == "cpu" and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return PackedLinear(weight, bias)
    return PlainLinear(weight.to(device), None if bias is None else bias.to(device))


class PackedLinear:
    """`functional.linear` repacks its weights at every call: 48 ms a pass instead of 29."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        # the 16 is a hint for the blocking; passes of any width accept the result
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 16)
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._weight, self._bias, "none", [], ""
        )
        return out

    def onto(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, residual, self._weight, self._bias, "add"
        )
        return out


class PlainLinear:
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self._weight, self._bias)

    def onto(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return residual + functional.linear(x, self._weight, self._bias)
