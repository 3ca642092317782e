"""A linear layer in plain torch and fp32."""

import torch


def linear_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    out = x.float() @ weight.float().T
    for added in (bias, residual):
        if added is not None:
            out = out + added.float()
    return out.to(dtype)
