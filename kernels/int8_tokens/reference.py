"""Bytes with a scale a row, in plain torch."""

import torch

LEVELS, ZERO, TINY = 127, 128, 1e-30


def quantised_reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    wide = x.float()
    largest = wide.abs().amax(1, True).clamp_min_(TINY)
    # a number divided by a tensor would be its reciprocal times the number, rounded twice
    levels = wide.mul_(torch.tensor(LEVELS) / largest).round_().to(torch.int8)
    return levels.view(torch.uint8).add_(ZERO), largest.mul_(1 / LEVELS)


def restored_reference(
    products: torch.Tensor, steps: torch.Tensor, onto: torch.Tensor | None
) -> torch.Tensor:
    total = products * steps if onto is None else torch.addcmul(onto.float(), products, steps)
    return total.bfloat16()
