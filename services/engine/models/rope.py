"""Rotary positions, rotate-half form."""

import math
from typing import NamedTuple

import torch

from services.engine.models.config import Llama3Scaling, RopeConfig


class Angles(NamedTuple):
    cos: torch.Tensor  # [T, 1, head_dim]
    sin: torch.Tensor  # [T, 1, head_dim], its first half negated


class Rope:
    def __init__(self, config: RopeConfig, head_dim: int, device: torch.device) -> None:
        steps = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        frequencies = 1.0 / (config.theta**steps)
        if config.scaling:
            frequencies = slowed(frequencies, config.scaling)
        self._frequencies = frequencies.to(device)  # fp32 [head_dim / 2]

    def angles(self, positions: torch.Tensor, dtype: torch.dtype) -> Angles:
        """For `positions` int64 [T]; computed in fp32, once a pass."""
        turns = positions.float()[:, None, None] * self._frequencies
        cos, sin = turns.cos(), turns.sin()
        return Angles(torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype))


def rotate(heads: torch.Tensor, angles: Angles) -> torch.Tensor:
    """`heads` [T, any, head_dim], rotated; a new tensor."""
    half = heads.shape[-1] // 2
    swapped = torch.cat((heads[..., half:], heads[..., :half]), -1)
    return torch.addcmul(heads * angles.cos, swapped, angles.sin)


def slowed(frequencies: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    """Long wavelengths are slowed by `factor`, short ones kept, those between are blended."""
    wavelengths = 2 * math.pi / frequencies
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    share = ((scaling.original_context / wavelengths - low) / (high - low)).clamp(0, 1)
    return (1 - share) * frequencies / scaling.factor + share * frequencies
