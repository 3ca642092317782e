"""From a folder to a model of the right family."""

from pathlib import Path

import torch

from services.engine.models.config import parse_config
from services.engine.models.llama import LlamaModel
from services.engine.models.weights import Weights


def load_model(
    folder: Path, *, dtype: torch.dtype, device: torch.device, exact: bool = True
) -> LlamaModel:
    """The model of `folder`, its weights on `device` in `dtype`.

    Raises:
        CheckpointError: damaged, incomplete, or of a family that is not supported.
    """
    config = parse_config(folder)
    match config.family:
        case "llama":
            return LlamaModel(config, Weights(folder), dtype, device, exact=exact)
        case family:
            raise AssertionError(f"config.py parses {family}, but nothing here builds it")
