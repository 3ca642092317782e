"""What the kernel computes, for one row that begins at position 0, in plain torch."""

import torch

from kernels.attention.reference import rotated


def pair_attention_reference(
    qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, heads: int, kv_heads: int
) -> torch.Tensor:
    """qkv bf16 [T, (heads + 2 * kv_heads) * head_dim], cos and sin [T, head_dim / 2], to fp32
    [T, heads * head_dim]."""
    parts = qkv.float().view(len(qkv), heads + 2 * kv_heads, -1).transpose(0, 1)
    query, key, value = parts[:heads], parts[heads:-kv_heads], parts[-kv_heads:]
    group, scale = heads // kv_heads, query.shape[-1] ** -0.5
    query = (rotated(query, cos, sin) * scale / torch.tensor(2.0).log()).bfloat16().float()
    key = rotated(key, cos, sin).bfloat16().float().repeat_interleave(group, 0)
    scores = torch.matmul(query, key.transpose(1, 2))
    scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
    weights = (scores - scores.amax(-1, keepdim=True)).exp2()
    mixed = torch.matmul(weights.bfloat16().float(), value.repeat_interleave(group, 0))
    mixed /= weights.sum(-1, keepdim=True)
    return mixed.transpose(0, 1).flatten(1)
