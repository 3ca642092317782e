"""Rotary positions, rotate-half form."""

import math
from typing import NamedTuple

import torch

from services.engine.models.config import Llama3Scaling, RopeConfig


class Angles(NamedTuple):
    """The cosines and sines of each column's turns, fp32 [T, head_dim / 2]."""

    cos: torch.Tensor
    sin: torch.Tensor


class Rope:
    def __init__(self, config: RopeConfig, head_dim: int, device: torch.device) -> None:
        steps = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        frequencies = 1.0 / (config.theta**steps)
        if config.scaling:
            frequencies = slowed(frequencies, config.scaling)
        self._frequencies = frequencies.to(device)  # fp32 [head_dim / 2]

    def angles(self, positions: torch.Tensor) -> Angles:
        """For `positions` int64 [T]; computed once a pass."""
        turns = positions.float()[:, None] * self._frequencies
        return Angles(turns.cos(), turns.sin())


def rotate(heads: torch.Tensor, angles: Angles) -> torch.Tensor:
    """`heads` [T, any, head_dim], rotated in fp32; a new tensor of the same type."""
    cos, sin = angles.cos[:, None], angles.sin[:, None]
    low, high = heads.float().chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1).to(heads.dtype)


def slowed(frequencies: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    """Long wavelengths are slowed by `factor`, short ones kept, those between are blended."""
    wavelengths = 2 * math.pi / frequencies
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    share = ((scaling.original_context / wavelengths - low) / (high - low)).clamp(0, 1)
    return (1 - share) * frequencies / scaling.factor + share * frequencies
