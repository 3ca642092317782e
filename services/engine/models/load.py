"""From a folder to a model of the right family."""

from pathlib import Path

import torch

from services.engine.models.config import parse_config
from services.engine.models.int8_linear import check_int8
from services.engine.models.llama import LlamaModel
from services.engine.models.weight_form import Matrices, WeightForm
from services.engine.models.weights import Weights


def load_model(
    folder: Path,
    *,
    dtype: torch.dtype,
    device: torch.device,
    exact: bool = True,
    form: WeightForm = "full",
) -> LlamaModel:
    """The model of `folder` on `device` in `dtype`, the matrices of its layers in `form`.

    Raises:
        CheckpointError: damaged, incomplete, or of a family that is not supported.
        ConfigError: the form does not go with the model or the machine.
    """
    config = parse_config(folder)
    Matrices.of(config).check(form)
    if form == "int8":
        check_int8()
    match config.family:
        case "llama":
            return LlamaModel(config, Weights(folder, form), dtype, device, exact=exact)
        case family:
            raise AssertionError(f"config.py parses {family}, but nothing here builds it")
