"""What the kernel computes, for one row that begins at position 0, in plain torch and fp32."""

import torch
from torch.nn import functional


def attention_reference(
    qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, heads: int, kv_heads: int
) -> torch.Tensor:
    """qkv [T, (heads + 2 * kv_heads) * head_dim], cos and sin [T, head_dim / 2], to
    [T, heads * head_dim]. Keys are rounded to qkv's type, as the cache keeps them."""
    parts = qkv.float().view(len(qkv), heads + 2 * kv_heads, -1).transpose(0, 1)
    query, key, value = parts[:heads], parts[heads:-kv_heads], parts[-kv_heads:]
    key = rotated(key, cos, sin).to(qkv.dtype).float()
    mixed = functional.scaled_dot_product_attention(
        rotated(query, cos, sin)[None],
        key[None],
        value[None],
        is_causal=True,
        enable_gqa=True,
    )
    return mixed[0].transpose(0, 1).flatten(1)


def rotated(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = heads.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)
