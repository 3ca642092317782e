"""The gated unit of the llama family (Shazeer 2020), computed in fp32 and rounded once."""

import numpy as np
import torch

from kernels.arrays import DTYPES, Rows, array, empty
from kernels.lanes import WIDTH
from kernels.swiglu.kernel import gated
from kernels.swiglu.reference import swiglu_reference


def swiglu(gate_up: Rows) -> Rows:
    """gate_up [T, 2 * size] to [T, size]: silu of the first half times the second.

    The kernel takes what lies on a CPU in bf16 or fp32, with `size` a multiple of 16; torch the
    rest.
    """
    rows, width = gate_up.shape
    if not isinstance(gate_up, np.ndarray) and not _fits(gate_up, width):
        return swiglu_reference(gate_up)
    out = empty(gate_up, rows, width // 2)
    gated(10 * rows * width, array(gate_up), array(out))
    return out


def _fits(gate_up: torch.Tensor, width: int) -> bool:
    return gate_up.device.type == "cpu" and not width % (2 * WIDTH) and gate_up.dtype in DTYPES
