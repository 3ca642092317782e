"""Weights of a model folder, memory-mapped, by name."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import safe_open

from services.engine.models.tensor_index import read_index, safetensors_errors
from shared.errors import CheckpointError

Take = Callable[[str, tuple[int, ...]], torch.Tensor]


def open_weights(folder: Path, dtype: torch.dtype, device: torch.device) -> Take:
    """A function that returns the named tensor, checked for its shape, in `dtype` on `device`.

    Raises:
        CheckpointError: a file that is not sound; the function raises it for a missing tensor or
            another shape.
    """
    index = read_index(folder)

    def take(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        info = index.get(name)
        if info is None:
            raise CheckpointError(f"{folder} has no tensor {name}")
        with safetensors_errors(info.file), safe_open(info.file, framework="pt") as opened:
            tensor: torch.Tensor = opened.get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise CheckpointError(
                f"{name} in {folder} has shape {tuple(tensor.shape)}, expected {shape}"
            )
        return tensor.to(device=device, dtype=dtype)

    return take
