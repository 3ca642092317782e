"""The gated unit of the llama family (Shazeer 2020), computed in fp32 and rounded once."""

import torch

from kernels.arrays import DTYPES, array
from kernels.lanes import WIDTH
from kernels.swiglu.kernel import gated
from kernels.swiglu.reference import swiglu_reference


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """gate_up [T, 2 * size] to [T, size]: silu of the first half times the second.

    The kernel takes what lies on a CPU in bf16 or fp32, with `size` a multiple of 16; torch the
    rest.
    """
    rows, width = gate_up.shape
    if gate_up.device.type != "cpu" or width % (2 * WIDTH) or gate_up.dtype not in DTYPES:
        return swiglu_reference(gate_up)
    out = gate_up.new_empty((rows, width // 2))
    gated(20 * out.numel(), array(gate_up), array(out))
    return out
