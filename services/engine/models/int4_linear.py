"""A linear layer whose weights are four bits each, in groups with a scale and a zero of their own.

torch's kernel for it multiplies bf16 activations in fp32 and gives a token the same bits at every
width, but has no fast path for many columns. A layer of the demo model, one core of an EPYC with
AVX-512, widths 1, 16, 64 and 128: 0.10, 0.65, 2.6 and 5.3 ms; in bf16 0.13, 0.29, 0.96 and 1.9.
"""

import torch

from services.engine.models.weight_form import GROUP

STEPS = 15  # between a group's lowest level and its highest
MIDDLE = 8  # the level whose value is the group's zero
TINY = 1e-30  # in place of the step of a group of equal weights


class Int4Linear:
    """`weight` bf16 [out, in], `bias` bf16 [out] or none; bf16 in and out."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        levels, scale, zero = grouped(weight)
        self._weight = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels, 1)
        self._scales = torch.stack((scale, zero), -1).transpose(0, 1).contiguous()
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x, self._weight, GROUP, self._scales
        )
        return out if self._bias is None else out.add_(self._bias)

    def onto(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self(x).add_(residual)


def grouped(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Levels int32 [out, in], 0 to 15, and bf16 scale and zero [out, in / 32], so that a weight is
    about (level - 8) * scale + zero.

    Weights that lie on 16 even steps from a group's smallest to its largest, as those of GGUF's
    Q4_1 blocks do, get their own levels back; only scale and zero are rounded.
    """
    groups = weight.float().view(len(weight), -1, GROUP)  # [out, in / 32, 32]
    low, high = groups.amin(-1, True), groups.amax(-1, True)
    step = ((high - low) / STEPS).clamp_min_(TINY)
    levels = ((groups - low) / step).round_()
    scale = step.bfloat16()
    # the zero that is best for the scale as it is kept
    zero = (groups - (levels - MIDDLE) * scale.float()).mean(-1).bfloat16()
    return levels.flatten(1).to(torch.int32), scale.squeeze(-1), zero
