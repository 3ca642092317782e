"""Tensors as kernels see them."""

import numpy as np
import torch

DTYPES = (torch.float32, torch.bfloat16)


def array(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a contiguous CPU tensor: float32, or bfloat16 as uint16 of the same bits."""
    assert tensor.is_contiguous(), "kernels take contiguous tensors"
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    return tensor.numpy()
