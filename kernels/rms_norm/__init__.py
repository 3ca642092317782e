"""Root mean square normalisation (Zhang, Sennrich 2019), computed in fp32."""

import torch

from kernels.arrays import DTYPES, array
from kernels.lanes import WIDTH
from kernels.rms_norm.kernel import normalise
from kernels.rms_norm.reference import rms_norm_reference


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x [T, size] times `weight` fp32 [size], over the root of its mean square.

    The kernel takes what lies on a CPU in bf16 or fp32, with `size` a multiple of 16; torch the
    rest.
    """
    size = x.shape[-1]
    if x.device.type != "cpu" or size % WIDTH or x.dtype not in DTYPES:
        return rms_norm_reference(x, weight, eps)
    out = torch.empty_like(x)
    normalise(4 * x.numel(), array(x), array(weight), eps, array(out))
    return out
