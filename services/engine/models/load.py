"""The model of a folder, by its family."""

from pathlib import Path

import torch

from services.engine.models.llama import LlamaModel


def load_model(folder: Path, *, dtype: torch.dtype, device: torch.device) -> LlamaModel:
    """Raises CheckpointError: unsound, or of a family that is not built yet (the config says)."""
    return LlamaModel.load(folder, dtype=dtype, device=device)
