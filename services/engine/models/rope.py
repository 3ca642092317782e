"""Rotary position embedding, rotate-half form (Su et al. 2021), with Llama 3's scaling."""

import math

import torch

from services.engine.models.config import LlamaConfig


def rope_tables(
    config: LlamaConfig, max_context: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, fp32 [max_context, 1, head_dim]."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope.theta**half
    if scaling := config.rope.scaling:
        wavelength = 2 * math.pi / frequencies
        ratio = scaling.original_context / wavelength
        smooth = (ratio - scaling.low_freq_factor) / (
            scaling.high_freq_factor - scaling.low_freq_factor
        )
        smooth = smooth.clamp(0.0, 1.0)
        frequencies = (1 - smooth) * frequencies / scaling.factor + smooth * frequencies
    angles = torch.outer(torch.arange(max_context, dtype=torch.float32), frequencies)
    both = torch.cat((angles, angles), dim=-1).unsqueeze(1)
    return both.cos().to(device), both.sin().to(device)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [columns, heads, head_dim] at the columns' positions, in x's dtype."""
    low, high = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-high, low), dim=-1) * sin).to(x.dtype)
