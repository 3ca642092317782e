"""Root mean square normalisation (Zhang, Sennrich 2019), computed in fp32."""

import numpy as np
import torch

from kernels.arrays import DTYPES, Rows, array, empty
from kernels.lanes import WIDTH
from kernels.rms_norm.kernel import normalise
from kernels.rms_norm.reference import rms_norm_reference


def rms_norm(x: Rows, weight: Rows, eps: float) -> Rows:
    """x [T, size] times `weight` fp32 [size], over the root of its mean square.

    The kernel takes what lies on a CPU in bf16 or fp32, with `size` a multiple of 16; torch the
    rest.
    """
    size = x.shape[-1]
    if not isinstance(x, np.ndarray) and not _fits(x, size):
        return rms_norm_reference(x, weight, eps)
    out = empty(x, *x.shape)
    normalise(4 * len(x) * size, array(x), array(weight), eps, array(out))
    return out


def _fits(x: torch.Tensor, size: int) -> bool:
    return x.device.type == "cpu" and not size % WIDTH and x.dtype in DTYPES
