"""Tokens in bytes, each with a scale of its own, and back (Dettmers et al. 2022, "LLM.int8()")."""

import torch

from kernels.arrays import array
from kernels.int8_tokens.kernel import quantise, restore
from kernels.int8_tokens.reference import quantised_reference, restored_reference
from kernels.lanes import WIDTH


def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x bf16 [T, size] on a CPU to bytes around 128, uint8 [T, size], and what one step is worth in
    each row, fp32 [T, 1]: a row depends on no other.

    The kernel takes a `size` that is a multiple of 16; torch the rest.
    """
    if x.shape[1] % WIDTH:
        return quantised_reference(x)
    levels = torch.empty(x.shape, dtype=torch.uint8)
    steps = torch.empty((len(x), 1))
    quantise(4 * x.numel(), array(x), levels.numpy(), steps.numpy())
    return levels, steps


def restored(
    products: torch.Tensor, steps: torch.Tensor, onto: torch.Tensor | None = None
) -> torch.Tensor:
    """products fp32 [T, size] times each row's step [T, 1], plus `onto` bf16 [T, size] if there is
    one; bf16, rounded once."""
    if products.shape[1] % WIDTH:
        return restored_reference(products, steps, onto)
    out = torch.empty(products.shape, dtype=torch.bfloat16)
    base = out if onto is None else onto  # unread without one
    restore(
        2 * products.numel(), array(products), steps.numpy(), array(base), onto is not None,
        array(out),
    )  # fmt: skip
    return out
