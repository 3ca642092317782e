"""A linear layer in whole numbers of eight bits, weights and activations (W8A8).

Each row of the weights has one scale, and so has each token, whatever stands beside it (Dettmers et
al. 2022, "LLM.int8()", vector-wise quantisation without its outliers). The products are summed in
integers, so a pass of any width gives a token the same bits. A layer of the demo model, one core of
an EPYC with VNNI, widths 1, 16, 64 and 128: 0.17, 0.27, 0.66 and 1.2 ms; in bf16 0.13, 0.29, 0.96
and 1.9. Of the 0.17 are 0.04 for the four calls of the kernels around the products.
"""

import torch

from kernels.int8_tokens import quantised, restored
from shared.errors import ConfigError

LEVELS = 127  # of either sign
ZERO = 128  # what stands for 0 in a byte of `quantised`
TINY = 1e-30  # in place of the scale of a row of zeros


class Int8Linear:
    """`weight` bf16 [out, in], `bias` bf16 [out] or none; bf16 in and out."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        largest = weight.float().abs().amax(1).clamp_min_(TINY)
        levels = (weight.float() * (LEVELS / largest)[:, None]).round_().to(torch.int8)
        self._weight = torch.ops.onednn.qlinear_prepack(levels, None)
        self._scales = largest / LEVELS  # [out]
        self._zeros = torch.zeros(len(weight), dtype=torch.int32)
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out = restored(*self._products(x))
        return out if self._bias is None else out.add_(self._bias)

    def onto(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        out = restored(*self._products(x), residual)
        return out if self._bias is None else out.add_(self._bias)

    def _products(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """fp32 [T, out], to be multiplied by the tokens' steps, fp32 [T, 1]."""
        levels, steps = quantised(x)
        out: torch.Tensor = torch.ops.onednn.qlinear_pointwise(
            levels, 1.0, ZERO, self._weight, self._scales, self._zeros,
            None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return out, steps


def check_int8() -> None:
    """Raises ConfigError: this machine's kernel is missing, or does not sum exactly.

    Without VNNI some add two products in 16 bits, where the largest do not fit.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        raise ConfigError("--weights int8 needs a torch with oneDNN; use --weights bf16")
    most = Int8Linear(torch.ones(16, 64, dtype=torch.bfloat16), None)
    if not torch.equal(most(torch.ones(2, 64, dtype=torch.bfloat16)), torch.full((2, 16), 64.0)):
        raise ConfigError(
            "--weights int8: this CPU's kernel for bytes does not sum exactly (it has no VNNI); "
            "use --weights bf16"
        )
