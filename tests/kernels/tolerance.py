"""How far a kernel may be from its reference, relative, by the type of its result."""

import torch

TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 3e-3}


def relative_error(out: torch.Tensor, reference: torch.Tensor) -> float:
    return float((out.double() - reference.double()).norm() / reference.double().norm())
