"""The matrices of one layer, as Hugging Face names them in the llama family."""


def layer_projections(
    *, hidden: int, inner: int, queries: int, keys: int
) -> dict[str, tuple[int, int]]:
    """Name -> (outputs, inputs); `queries` and `keys` are heads times head_dim."""
    return {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
