"""A tiny model whose next token depends on the last one alone, and a drafter that knows it.

All layers add nothing to the residual stream, so the hidden state is the token's embedding behind
the norm; the MTP module passes the next token's embedding through in the same way. Its drafts are
always right, or, with noise, right for some tokens and wrong for others.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from services.engine.models.tiny import write_tiny, write_tiny_mtp

NOTHING = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


def write_chain(folder: Path, *, noise: float = 0.0, seed: int = 0) -> None:
    write_tiny(folder, seed=seed, tie_word_embeddings=False)
    write_tiny_mtp(folder, seed=seed)
    for name in ("model.safetensors", "mtp.safetensors"):
        tensors = load_file(folder / name)
        for key, tensor in tensors.items():
            if key.endswith(NOTHING):
                tensors[key] = torch.zeros_like(tensor)
        if name.startswith("mtp"):
            hidden = tensors["mtp.norm.weight"].shape[0]
            tensors["mtp.norm.weight"] = load_file(folder / "model.safetensors")[
                "model.norm.weight"
            ]
            tensors["mtp.pre_fc_norm_embedding.weight"] = torch.ones(hidden)
            generator = torch.Generator().manual_seed(seed)
            fc = torch.cat([torch.eye(hidden), torch.zeros(hidden, hidden)], dim=1)
            tensors["mtp.fc.weight"] = fc + noise * torch.randn(fc.shape, generator=generator)
        save_file(tensors, folder / name, metadata={"format": "pt"})
